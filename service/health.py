"""How a process is: a report from what it knows already, so that no probe waits for another system.

Only ``?verbose`` asks each of them now, all at once and for a bounded time; what they say changes no readiness.
"""

import asyncio

from service.answers import parity_with
from service.runtime import Failed, Live, Loading, Ping, Service
from shared.clock import Clock
from shared.metrics import Metrics
from shared.store.breaker import BreakerState

POLLS_UNTIL_DEGRADED = 3
_ALONE = "there is no store: scores are looked up in the snapshot's file alone"
_NO_FILE = (
    "there is no store, and no file of a promoted snapshot of this bundle in the folder of the runs; run the backfill, "
    "or set FORESCORE_RUNS"
)
_STANDS_IN = "scores come from the file of snapshot"
PING_SECONDS = 0.5
"""What has not answered by then is late."""


def is_ready(service: Service) -> bool:
    """Whether this process has scored its golden rows. The store has no part in it: its outage would take all down."""
    return isinstance(service.phase, Live) and not service.stopping


async def verbose_report(service: Service) -> dict[str, object]:
    """The body of the readiness probe, and how each thing is that a ready process leans on."""
    body = report(service)
    return body | {"checks": await _checks(service.phase)} if isinstance(service.phase, Live) else body


def report(service: Service) -> dict[str, object]:
    """The body of the readiness probe."""
    if service.stopping:
        return {"status": "stopping", "reason": "the process was told to end; what it still gets, it answers"}
    match service.phase:
        case Loading(reason=reason):
            return {"status": "loading", "reason": reason}
        case Failed(reason=reason):
            return {"status": "failed", "reason": reason}
        case Live() as live:
            limit = POLLS_UNTIL_DEGRADED * service.settings.service.pointer_poll_seconds
            degraded = _reason(live, limit)
            body: dict[str, object] = {"status": "ready"} if degraded is None else {"status": "degraded"}
            told = degraded or (_ALONE if live.alone else None)
            return body | ({"reason": told} if told else {})


def gauge(live: Live, metrics: Metrics, wall: Clock) -> None:
    """Sets the gauges that grow with time; called when they are read."""
    age = live.pointer.age()
    active = live.pointer.active
    snapshot_age = None if active is None else wall.now() - active.meta.scored_at
    metrics.store(is_there=not live.alone)
    metrics.breaker(is_open=live.store.breaker.state is not BreakerState.CLOSED)
    metrics.ages(pointer=float("inf") if age is None else age, snapshot=snapshot_age)
    if active is not None:
        meta = active.meta
        exact = parity_with(meta, live.scorer.golden_digest) == "exact"
        metrics.active(model=meta.model, model_version=meta.model_version, snapshot=meta.snapshot, exact=exact)
        metrics.rejected(meta.rejected / max(meta.input_rows, 1))


def _reason(live: Live, limit: float) -> str | None:
    age = live.pointer.age()
    if live.alone:
        return None if live.shelf.meta is not None else _NO_FILE
    standing = live.shelf.stands_for(None if live.pointer.active is None else live.pointer.active.meta.snapshot)
    if standing is not None and (live.pointer.lost or not live.pointer.reachable or age is None or age > limit):
        return f"the store {'is empty' if live.pointer.lost else 'does not answer'}; {_STANDS_IN} {standing.snapshot}"
    if not live.pointer.reachable or age is None or age > limit:
        return "the store does not answer; only entities whose features come from elsewhere are scored"
    if live.pointer.lost:
        return "the store has lost the active snapshot; publish it again"
    if live.chain.failing:
        return f"features cannot be had from {', '.join(sorted(live.chain.failing))}; the log says why"
    return None


async def _checks(live: Live) -> dict[str, object]:
    model, store, *sources = await asyncio.gather(
        *(_asked(ping) for ping in (live.pings.model, live.pings.store, *live.pings.features.values()))
    )
    return {
        "model": model | _model(live),
        "store": {"status": "none"}
        if live.alone
        else store | {"reachable": live.pointer.reachable, "breaker": live.store.breaker.state.name.lower()},
        "pointer": _pointer(live),
        "file": _file(live),
        "features": {
            name: found | ({"status": "failing"} if name in live.chain.failing else {})
            for name, found in zip(live.pings.features, sources, strict=True)
        },
    }


async def _asked(ping: Ping) -> dict[str, object]:
    """How it answered, and after how many milliseconds. What it said stays here: it may hold an address or a value."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        async with asyncio.timeout(PING_SECONDS):
            await ping()
    except TimeoutError:
        status = "late"
    except Exception:  # noqa: BLE001 - a source is code of others, and the probe answers whatever it raises
        status = "failing"
    else:
        status = "ok"
    return {"status": status, "ms": round((loop.time() - start) * 1000, 3)}


def _model(live: Live) -> dict[str, object]:
    return {
        "model": live.scorer.bundle.name,
        "model_version": live.scorer.bundle.version,
        "golden_digest": live.scorer.golden_digest,
        "device": live.scorer.device,
        "engine": live.scorer.engine,
    }


def _file(live: Live) -> dict[str, object]:
    meta = live.shelf.meta
    return {"status": "missing" if meta is None else "ok", "snapshot": None if meta is None else meta.snapshot}


def _pointer(live: Live) -> dict[str, object]:
    """Known here: the poll asks for it every second, and a probe need not."""
    active, age = live.pointer.active, live.pointer.age()
    known = live.pointer.reachable and not live.pointer.lost
    return {
        "status": "ok" if known else "failing",
        "ms": 0.0,
        "snapshot": None if active is None else active.meta.snapshot,
        "age_seconds": None if age is None else round(age, 3),
        "parity": None if active is None else parity_with(active.meta, live.scorer.golden_digest),
    }
