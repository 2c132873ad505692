import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from prometheus_client import CollectorRegistry

from shared.codes import Code
from shared.errors import StoreDown
from shared.metrics import Metrics
from shared.settings import Settings
from shared.telemetry import MAX_TEXT, LibraryHandler, Logger, StageTimer, configure_logging, plain_lines

MARKER = "4242.4242"
"""Stands for a feature value: it must show up nowhere."""


class Standing:
    """A clock that moves only as it is told to: by hand, or by a step for each look."""

    def __init__(self, now: float = 0.0) -> None:
        self.at = now
        self.step = 0.0

    def now(self) -> float:
        self.at += self.step
        return self.at


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Log:
    """A logger and the lines that it wrote."""

    def __init__(self, settings: Settings | None = None, stream: io.StringIO | None = None) -> None:
        self.stream = stream or io.StringIO()
        self.logger: Logger = configure_logging(settings or Settings(), self.stream, Standing(1_764_504_000.25))

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def fail() -> None:
    raise ValueError(f"could not convert {MARKER}")


def test_one_event_is_one_json_line() -> None:
    """Off a terminal, an event is one line of JSON with its time in UTC and its level."""
    log = Log()
    log.logger.info("request", status=200, seconds=0.5, entity="C1\n2", known=True, snapshot=None)
    assert log.lines == [
        {
            "time": "2025-11-30T12:00:00.250Z",
            "event": "request",
            "level": "info",
            "status": 200,
            "seconds": 0.5,
            "entity": "C1\n2",
            "known": True,
            "snapshot": None,
        }
    ]


@pytest.mark.parametrize(
    ("log_format", "stream", "pretty"),
    [
        ("auto", io.StringIO(), False),
        ("auto", Terminal(), True),
        ("json", Terminal(), False),
        ("pretty", io.StringIO(), True),
    ],
)
def test_the_format_follows_stream_and_settings(log_format: str, stream: io.StringIO, *, pretty: bool) -> None:
    """A terminal gets text to read, all else gets JSON, and the settings overrule both."""
    log = Log(Settings(log_format=log_format), stream)
    log.logger.info("request")
    assert stream.getvalue().startswith("{") is not pretty


def test_levels_below_the_settings_are_silent() -> None:
    """Nothing below the least level is written."""
    log = Log(Settings(log_level="warning"))
    log.logger.info("quiet")
    log.logger.warning("loud")
    assert [line["event"] for line in log.lines] == ["loud"]


def test_loggers_of_modules_write_to_the_same_place() -> None:
    """A logger that a module made at its import goes through the same gate as the one that is handed back."""
    module_logger = structlog.get_logger("forescore.pointer")
    log = Log()
    module_logger.info("pointer", features={"income": MARKER})
    assert [(line["event"], line["features"]) for line in log.lines] == [("pointer", "<dict>")]


def test_bound_context_is_in_every_line() -> None:
    """What is bound to the running task is told with each of its events."""
    log = Log()
    with structlog.contextvars.bound_contextvars(request="r1"):
        log.logger.info("inside")
    log.logger.info("outside")
    assert [line.get("request") for line in log.lines] == ["r1", None]


@pytest.mark.parametrize(
    "value", [{"income": MARKER}, [MARKER], (MARKER,), {MARKER}, MARKER.encode(), ValueError(MARKER), object()]
)
def test_only_simple_values_get_out(value: object) -> None:
    """Of anything that is not text, number or boolean, only the type is told."""
    log = Log()
    log.logger.info("request", value=value)
    assert log.lines[0]["value"] == f"<{type(value).__name__}>"
    assert MARKER not in log.stream.getvalue()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("x" * 1000, "x" * (MAX_TEXT - 3) + "..."),
        ("x" * MAX_TEXT, "x" * MAX_TEXT),
        ("\ud800", "?"),
        (2**64, str(2**64)),
        (-(2**63), -(2**63)),
        (float("nan"), None),
        (Code.MISSING, 1),
        (Path("a/b"), "a/b"),
    ],
)
def test_odd_values_are_written(value: object, written: object) -> None:
    """Long texts are cut, and nothing that is simple can break a line."""
    log = Log()
    log.logger.info("request", value=value)
    assert log.lines[0]["value"] == written


def test_an_exception_is_its_kind_and_place() -> None:
    """An exception of a library is told by kind and place: its message may hold a feature value."""
    log = Log()
    try:
        fail()
    except ValueError:
        log.logger.exception("request failed")
    assert log.lines[0]["error"] == "ValueError"
    assert str(log.lines[0]["at"]).startswith("test_telemetry.py:")
    assert MARKER not in log.stream.getvalue()


def test_our_own_errors_say_why() -> None:
    """An error of Forescore carries no value, so its message is told."""
    log = Log()
    log.logger.error("request failed", exc_info=StoreDown("redis: refused"))
    assert (log.lines[0]["error"], log.lines[0]["reason"]) == ("StoreDown", "redis: refused")


class Writes(io.RawIOBase):
    """What reaches the system, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override] # as a stream of text calls it
        self.found.append(bytes(data))
        return len(data)


def test_lines_and_their_end_are_written_at_once() -> None:
    """Several processes write to one place: no line of another may come between a line and its end."""
    writes = Writes()
    stream = io.TextIOWrapper(io.BufferedWriter(writes), encoding="utf-8", line_buffering=True)  # as stderr is
    configure_logging(Settings(), stream, Standing()).info("ready")
    plain = plain_lines()
    assert plain is not None
    for lines in (2, 5000):
        plain.write("\n".join(['{"event":"request"}'] * lines))
    assert [piece.count(b"\n") for piece in writes.found] == [1, 2, 5000]
    assert all(piece.endswith(b"\n") for piece in writes.found)


@pytest.fixture
def library() -> Iterator[logging.Logger]:
    logger = logging.getLogger("somelibrary.part")
    logger.propagate = False
    yield logger
    logger.handlers.clear()


def test_a_library_is_not_quoted(library: logging.Logger) -> None:
    """What a library logs is told by name and place, without its words."""
    log = Log()
    library.addHandler(LibraryHandler(log.logger))
    library.error("bad row %s", MARKER)
    assert (log.lines[0]["logger"], log.lines[0]["level"]) == ("somelibrary.part", "error")
    assert MARKER not in log.stream.getvalue()


def test_a_trusted_library_is_quoted(library: logging.Logger) -> None:
    """A library that tells only of itself is quoted, but not with an exception."""
    log = Log()
    library.addHandler(LibraryHandler(log.logger, speakers=("somelibrary",)))
    library.warning("listening on %s", "127.0.0.1")
    try:
        fail()
    except ValueError:
        library.exception("failed with %s", MARKER)
    assert log.lines[0]["message"] == "listening on 127.0.0.1"
    assert log.lines[1]["error"] == "ValueError"
    assert MARKER not in log.stream.getvalue()


def test_stages_add_up() -> None:
    """A stage that comes again is added to, also when its block raises, and stages keep their order."""
    clock = Standing()
    timer = StageTimer(clock)
    with timer.stage("lookup"):
        clock.at += 0.25
    clock.step = 1
    with pytest.raises(ValueError, match=MARKER), timer.stage("forward"):
        fail()
    clock.step = 0
    with timer.stage("lookup"):
        clock.at += 0.5
    timer.add("queue", 0.125)
    assert timer.seconds == {"lookup": 0.75, "forward": 1.0, "queue": 0.125}
    assert timer.server_timing() == "lookup;dur=750.000, forward;dur=1000.000, queue;dur=125.000"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_two_apps_have_two_sets_of_metrics() -> None:
    """Metrics live in the registry that they are given, so that two apps in one process do not meet."""
    first, second = Metrics(CollectorRegistry()), Metrics(CollectorRegistry())
    first.forward(16)
    assert value(first, "forescore_forward_rows_sum") == 16
    assert value(second, "forescore_forward_rows_sum") == 0


def test_a_request_is_counted_with_its_stages(metrics: Metrics) -> None:
    """One answered request counts once, by route and status, with the time of each of its stages."""
    stages = StageTimer(Standing())
    stages.add("lookup", 0.5)
    metrics.request("/score/{entity_id}", 200, 0.75, stages)
    assert value(metrics, "forescore_requests_total", route="/score/{entity_id}", status="200") == 1
    assert value(metrics, "forescore_request_duration_seconds_sum", route="/score/{entity_id}") == 0.75
    assert value(metrics, "forescore_stage_duration_seconds_sum", stage="lookup") == 0.5


def test_events_are_counted_by_kind(metrics: Metrics) -> None:
    """Look-ups count entities; rejections, write-backs and failures of sources count one by one."""
    metrics.lookup("hit", 3)
    metrics.rejection(Code.UNSEEN)
    metrics.write_back("written")
    metrics.feature_source_failed("store")
    assert value(metrics, "forescore_lookups_total", outcome="hit") == 3
    assert value(metrics, "forescore_rejections_total", code="unseen") == 1
    assert value(metrics, "forescore_write_backs_total", outcome="written") == 1
    assert value(metrics, "forescore_feature_source_failures_total", source="store") == 1


def test_one_snapshot_is_active(metrics: Metrics) -> None:
    """The active snapshot takes the place of the one before."""
    metrics.active(model="churn", model_version="1", snapshot="1-A", exact=True)
    metrics.active(model="churn", model_version="2", snapshot="2-B", exact=False)
    assert value(metrics, "forescore_snapshot_info", model="churn", model_version="1", snapshot="1-A") is None
    assert value(metrics, "forescore_snapshot_info", model="churn", model_version="2", snapshot="2-B") == 1
    assert value(metrics, "forescore_parity_exact") == 0


def test_gauges_say_how_things_stand(metrics: Metrics) -> None:
    """Breaker and ages are what they were last; no snapshot is older than every threshold."""
    metrics.breaker(is_open=True)
    metrics.ages(pointer=0.5, snapshot=None)
    assert value(metrics, "forescore_breaker_open") == 1
    assert value(metrics, "forescore_pointer_age_seconds") == 0.5
    assert value(metrics, "forescore_snapshot_age_seconds") == float("inf")
