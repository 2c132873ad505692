"""How a process is: a report from what it knows already. No probe waits for another system."""

from service.answers import parity_with
from service.runtime import Failed, Live, Loading, Service
from shared.clock import Clock
from shared.store.breaker import BreakerState
from shared.telemetry import Metrics

POLLS_UNTIL_DEGRADED = 3


def is_ready(service: Service) -> bool:
    """Whether this process has scored its golden rows. The store has no part in it: its outage would take all down."""
    return isinstance(service.phase, Live)


def report(service: Service, *, verbose: bool) -> dict[str, object]:
    """The body of the readiness probe."""
    match service.phase:
        case Loading(reason=reason):
            return {"status": "loading", "reason": reason}
        case Failed(reason=reason):
            return {"status": "failed", "reason": reason}
        case Live() as live:
            limit = POLLS_UNTIL_DEGRADED * service.settings.service.pointer_poll_seconds
            degraded = _reason(live, limit)
            body: dict[str, object] = {"status": "ready"} if degraded is None else {"status": "degraded"}
            return body | ({"reason": degraded} if degraded else {}) | ({"checks": _checks(live)} if verbose else {})


def gauge(live: Live, metrics: Metrics, wall: Clock) -> None:
    """Sets the gauges that grow with time; called when they are read."""
    age = live.pointer.age()
    active = live.pointer.active
    snapshot_age = None if active is None else wall.now() - active.meta.scored_at
    metrics.breaker(is_open=live.store.breaker.state is not BreakerState.CLOSED)
    metrics.ages(pointer=float("inf") if age is None else age, snapshot=snapshot_age)
    if active is not None:
        meta = active.meta
        exact = parity_with(meta, live.scorer.golden_digest) == "exact"
        metrics.active(model=meta.model, model_version=meta.model_version, snapshot=meta.snapshot, exact=exact)


def _reason(live: Live, limit: float) -> str | None:
    age = live.pointer.age()
    if not live.pointer.reachable or age is None or age > limit:
        return "the store does not answer; only entities whose features come from elsewhere are scored"
    if live.pointer.lost:
        return "the store has lost the active snapshot; publish it again"
    if live.chain.failing:
        return f"features cannot be had from {', '.join(sorted(live.chain.failing))}; the log says why"
    return None


def _checks(live: Live) -> dict[str, object]:
    active = live.pointer.active
    age = live.pointer.age()
    return {
        "model": {
            "model": live.scorer.bundle.name,
            "model_version": live.scorer.bundle.version,
            "golden_digest": live.scorer.golden_digest,
            "device": live.scorer.device,
            "engine": live.scorer.engine,
        },
        "store": {"reachable": live.pointer.reachable, "breaker": live.store.breaker.state.name.lower()},
        "pointer": {
            "snapshot": None if active is None else active.meta.snapshot,
            "age_seconds": None if age is None else round(age, 3),
            "parity": None if active is None else parity_with(active.meta, live.scorer.golden_digest),
        },
        "features": {name: "failing" if name in live.chain.failing else "ok" for name in live.chain.names},
    }
