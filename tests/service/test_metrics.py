"""What the metrics say of a service that answers."""

from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient
from support.publish import publish
from support.services import serving

from shared.metrics import LOOKUPS, RENEWALS, RUNGS, SHED, WRITE_BACKS, Metrics
from shared.scorer import Scorer
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}
NOW = 1_800_000_000
HOUR = 3600


def _metric(client: TestClient, line: str) -> float:
    found = [text for text in client.get("/metrics").text.splitlines() if text.startswith(f"{line} ")]
    return float(found[0].split()[-1]) if found else 0.0


def test_the_age_of_what_was_served_is_counted(scorer: Scorer, memory: MemoryStore) -> None:
    """Of each score from the cache, alone or in a list; not of one that was scored for the answer."""
    publish(memory.store, scorer, {"a": ROW, "b": ROW}, scored_at=NOW - 25 * HOUR)
    with serving(scorer, memory, wall=FrozenClock(NOW)) as client:
        client.get("/score/a")
        client.post("/score", json={"items": [{"entity_id": "a"}, {"entity_id": "b"}, {"features": ROW}]})
        name = "forescore_served_score_age_seconds"
        within = [_metric(client, f'{name}_bucket{{le="{hours * HOUR}.0"}}') for hours in (24, 36)]
        assert (within, _metric(client, f"{name}_sum")) == ([0, 3], 3 * 25 * HOUR)


def test_buckets_reach_from_a_minute_to_thirty_days() -> None:
    """A service of minutes and one that runs monthly are both told apart from one whose batch has stopped."""
    registry = CollectorRegistry()
    Metrics(registry)
    (family,) = [one for one in registry.collect() if one.name == "forescore_served_score_age_seconds"]
    bounds = [float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")]

    assert (bounds[0], bounds[-2:]) == (60, [30 * 24 * HOUR, float("inf")])


def test_gauges_of_a_live_service_are_there(scorer: Scorer, memory: MemoryStore) -> None:
    """Ages, parity, snapshot and breaker are set whenever they are read."""
    publish(memory.store, scorer, {"a": ROW}, scored_at=NOW - HOUR)
    with serving(scorer, memory, wall=FrozenClock(NOW)) as client:
        assert _metric(client, "forescore_snapshot_age_seconds") == HOUR
        assert 0 <= _metric(client, "forescore_pointer_age_seconds") < HOUR
        assert _metric(client, "forescore_parity_exact") == 1
        info = 'forescore_snapshot_info{model="purchase",model_version="1",snapshot="1-A"}'
        assert (_metric(client, info), _metric(client, "forescore_breaker_open")) == (1, 0)


def test_a_ready_service_says_so_and_what_was_rejected(scorer: Scorer, memory: MemoryStore) -> None:
    """1 once the golden rows are scored, and the rejected share of the active snapshot's input."""
    publish(memory.store, scorer, {"a": ROW}, input_rows=8, scored=6, rejected=2)
    with serving(scorer, memory) as client:
        assert _metric(client, "forescore_ready") == 1
        assert _metric(client, "forescore_snapshot_rejected_ratio") == 0.25


def test_what_will_be_counted_begins_at_zero() -> None:
    """``increase()`` does not see a series that appears with its first count."""
    registry = CollectorRegistry()
    Metrics(registry)
    for name, label, values in (
        ("forescore_lookups_total", "outcome", LOOKUPS),
        ("forescore_answers_total", "rung", RUNGS),
        ("forescore_write_backs_total", "outcome", WRITE_BACKS),
        ("forescore_renewals_total", "outcome", RENEWALS),
        ("forescore_shed_rows_total", "reason", SHED),
    ):
        assert [registry.get_sample_value(name, {label: value}) for value in values] == [0] * len(values)
    assert registry.get_sample_value("forescore_ready") == 0
