import asyncio
import io
from typing import Any

import orjson
import pytest
import structlog
from prometheus_client import CollectorRegistry
from support.publish import publish
from support.services import service_settings, serving

from service.lane_answers import Hit
from service.lines import RequestLines, Told
from shared.metrics import Metrics
from shared.scorer import Scorer
from shared.settings import Settings
from shared.telemetry import StageTimer, configure_logging
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}
NOW = 1_700_000_000.9876543


def _settings(scorer: Scorer, **changes: Any) -> Settings:
    return service_settings(scorer, fast_lane=changes.pop("fast_lane", True)).model_copy(update=changes)


def _lines(log: io.StringIO) -> list[str]:
    return [line for line in log.getvalue().splitlines() if '"event":"request"' in line and '"info"' in line]


def _after(log: io.StringIO, scorer: Scorer, memory: MemoryStore, paths: list[str], **changes: Any) -> list[str]:
    log.truncate(0)
    log.seek(0)
    clock = FrozenClock(NOW)
    configure_logging(Settings(log_format="json"), log, clock)
    with serving(scorer, memory, _settings(scorer, **changes), wall=clock, monotonic=clock) as client:
        for path in paths:
            client.get(path)
    return _lines(log)


def test_a_gathered_line_is_the_logger_s(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """But for the request's id, a hit has the same line, to the byte, from the lane and from the framework."""
    publish(memory.store, scorer, dict.fromkeys(["a", 'q"\u65e5'], ROW), snapshot="1-" + "S" * 400)
    paths = ["/score/a", '/score/q"\u65e5', "/score/nobody", "/score/a"]
    both = [_after(log, scorer, memory, paths, fast_lane=fast) for fast in (True, False)]
    ids = [[str(orjson.loads(line)["id"]) for line in lines] for lines in both]
    bare = [
        [line.replace(one, "") for line, one in zip(lines, own, strict=True)]
        for lines, own in zip(both, ids, strict=True)
    ]
    assert len(bare[0]) == len(paths)
    assert bare[0] == bare[1]
    assert len({*ids[0], *ids[1]}) == 2 * len(paths)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("keep", "kept"), [("all", 11), ("errors", 1), ("sampled:5", 3)])
def test_what_is_left_out_is_counted(
    scorer: Scorer,
    memory: MemoryStore,
    log: io.StringIO,
    keep: str,
    kept: int,
    fast: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Lines of refusals are always there; of others as many as the setting says, and a metric has the rest."""
    publish(memory.store, scorer, {"a": ROW})
    configure_logging(Settings(log_format="json"), log)
    with serving(scorer, memory, _settings(scorer, fast_lane=fast, log_requests=keep)) as client:
        for _ in range(10):
            client.get("/score/a")
        client.get("/score/nobody")
        told = client.get("/metrics").text
    assert len(_lines(log)) == kept
    assert f"forescore_request_lines_left_out_total {11 - kept}.0" in told
    assert 'forescore_requests_total{route="/score/{entity_id}",status="200"} 10.0' in told


def test_hits_are_on_the_page_of_metrics_at_once(scorer: Scorer, memory: MemoryStore) -> None:
    """However long counts are gathered, who asks this process sees them all."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer, memory, _settings(scorer, log_buffer_ms=10_000)) as client:
        client.get("/score/a")
        client.get("/score/a")
        told = client.get("/metrics").text
    assert 'forescore_lookups_total{outcome="hit"} 2.0' in told
    assert 'forescore_stage_duration_seconds_count{stage="lookup"} 2.0' in told
    assert 'forescore_request_duration_seconds_count{route="/score/{entity_id}"} 2.0' in told


def test_a_line_waits_no_longer_than_the_setting(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """With nothing to wait for, the line is there with the answer."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer, memory, _settings(scorer, log_buffer_ms=0)) as client:
        client.get("/score/a")
        assert len(_lines(log)) == 1


def test_on_a_terminal_a_hit_is_pretty_too(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """Where lines are not JSON, the logger writes them."""
    publish(memory.store, scorer, {"a": ROW})
    configure_logging(Settings(log_format="pretty"), log)
    with serving(scorer, memory, _settings(scorer)) as client:
        client.get("/score/a")
    (line,) = [line for line in log.getvalue().splitlines() if "entity_id=a" in line]
    assert not line.startswith("{")


def test_counting_together_is_counting_each() -> None:
    """The tally leaves the metrics as one call for each request would, at the buckets' bounds too."""
    seconds = [0.0, 0.0005, 0.000500001, 0.03, 2.5, 99.0]
    each, together = Metrics(CollectorRegistry()), Metrics(CollectorRegistry())
    tally = together.tally("/r")
    for place, spent in enumerate(seconds):
        stages = StageTimer(FrozenClock())
        stages.add("lookup", spent / 2)
        status = 200 if place % 2 else 304
        each.request("/r", status, spent, stages)
        each.lookup("hit")
        each.answered("cache")
        each.served(60 * spent)
        hit = Hit(status, b'""', b"0", b"", "id", spent / 2, b'"a"', "1-a", 60 * spent)
        tally.add([(hit, spent)])
    tally.flush()
    assert _samples(each) == _samples(together)


def test_counting_what_was_scored_together_is_counting_each() -> None:
    """The same for requests of several routes, statuses and stages."""
    each, together = Metrics(CollectorRegistry()), Metrics(CollectorRegistry())
    tally = together.scored_tally()
    for place, spent in enumerate([0.0, 0.0005, 0.000500001, 0.03, 2.5, 99.0]):
        stages = StageTimer(FrozenClock())
        for name in ("lookup", "forward")[: 1 + place % 2]:
            stages.add(name, spent / 2)
        route, status = ("/r", "/s")[place % 2], (200, 304, 503)[place % 3]
        each.request(route, status, spent, stages)
        tally.add(route, status, spent, stages.seconds)
    tally.flush()
    assert _samples(each) == _samples(together)


@pytest.mark.parametrize("line_format", ["json", "pretty"])
def test_a_line_of_what_was_scored_together_is_the_logger_s(log: io.StringIO, line_format: Any) -> None:
    """To the byte, as JSON and on a terminal; what is too long for a line is shortened alike."""
    configure_logging(Settings(log_format=line_format), log, FrozenClock(NOW))
    told = Told("1f", "GET", "/r", 200, {"entity_id": 'q"\u65e5', "source": "online", "snapshot": "S" * 400}, {})
    asyncio.run(_write_scored(told))
    facts: dict[str, Any] = {"id": "1f", "method": "GET", "route": "/r", "status": 200, "duration_ms": 1.235}
    structlog.get_logger().info("request", **facts, **told.facts)
    first, second = log.getvalue().splitlines()
    assert first == second


@pytest.mark.parametrize("line_format", ["json", "pretty"])
def test_a_line_of_what_was_refused_together_is_the_logger_s(log: io.StringIO, line_format: Any) -> None:
    """To the byte, as JSON and on a terminal, of each method and route its own."""
    configure_logging(Settings(log_format=line_format), log, FrozenClock(NOW))
    refused = [
        Told(str(place), method, route, 503, {"problem": "overloaded"}, {})
        for place, (method, route) in enumerate([("GET", "/r"), ("GET", "/s"), ("POST", "/r"), ("GET", "/r")])
    ]
    asyncio.run(_write_refused(refused))
    for one in refused:
        facts: dict[str, Any] = {"method": one.method, "route": one.route, "status": 503, "duration_ms": 0.0}
        structlog.get_logger().info("request", id=one.call_id, **facts, **one.facts)
    lines = log.getvalue().splitlines()
    assert lines[:4] == lines[4:]
    assert len(lines) == 8


async def _write_refused(refused: list[Told]) -> None:
    lines = RequestLines(Metrics(CollectorRegistry()), buffer_ms=1000)
    for one in refused:
        lines.refused(one)
    lines.flush()


async def _write_scored(told: Told) -> None:
    lines = RequestLines(Metrics(CollectorRegistry()), buffer_ms=1000)
    lines.scored(told, 0.0012346)
    lines.flush()


def _samples(metrics: Metrics) -> dict[str, float]:
    return {
        f"{sample.name}{sorted(sample.labels.items())}": round(sample.value, 9)
        for family in metrics.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
