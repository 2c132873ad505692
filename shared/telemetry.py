"""What a process tells about itself: log lines, stage timings, metrics. Never a feature value.

Importing this does nothing: an entry point calls ``configure_logging`` once, and ``Metrics`` lives in the registry
that it is given.
"""

import logging
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

import orjson
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from structlog.typing import FilteringBoundLogger, Processor

from shared.clock import Clock, WallClock
from shared.codes import Code
from shared.errors import ForescoreError
from shared.settings import Settings

Logger = FilteringBoundLogger
Event = MutableMapping[str, Any]

MAX_TEXT = 300
NO_SNAPSHOT = float("inf")
"""The age of a snapshot that is not there: older than any alarm's threshold."""
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_WALL = WallClock()
_INT64 = range(-(2**63), 2**63)


def configure_logging(settings: Settings, stream: TextIO, clock: Clock = _WALL) -> Logger:
    """Makes every logger of structlog write here, one line an event, and returns one.

    Lines are pretty on a terminal and JSON elsewhere, or as the settings say.
    """
    pretty = settings.log_format == "pretty" or (settings.log_format == "auto" and stream.isatty())
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _Stamp(clock),
        name_the_error,
        only_simple,
        structlog.dev.ConsoleRenderer(colors=stream.isatty()) if pretty else _json,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.log_level]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    logger: Logger = structlog.get_logger()
    return logger


class LibraryHandler(logging.Handler):
    """Turns what libraries log into events of ours: who spoke and where, and the words only of those known to be safe.

    A library's message may hold an exception's text, and that a feature value. ``uvicorn`` tells of itself.
    """

    def __init__(self, logger: Logger, speakers: tuple[str, ...] = ("uvicorn",)) -> None:
        super().__init__()
        self._logger = logger
        self._speakers = speakers

    def emit(self, record: logging.LogRecord) -> None:
        """Logs one record."""
        event: dict[str, object] = {"logger": record.name, "at": f"{record.filename}:{record.lineno}"}
        if record.exc_info:
            event["exc_info"] = record.exc_info
        elif record.name.partition(".")[0] in self._speakers:
            event["message"] = record.getMessage()
        self._logger.log(record.levelno, "library", **event)


def name_the_error(_logger: object, _method: str, event: Event) -> Event:
    """Puts an exception's kind and place for it. Its message only where it is one of ours: those carry no values."""
    given = event.pop("exc_info", None)
    error = sys.exception() if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        event["error"] = type(error).__name__
        if isinstance(error, ForescoreError):
            event["reason"] = str(error)
        if frames := traceback.extract_tb(error.__traceback__):
            event["at"] = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
    return event


def only_simple(_logger: object, _method: str, event: Event) -> Event:
    """The last gate: bounded texts, numbers, booleans. Of anything else, only its type is told."""
    return {_simple_text(name): _simple(value) for name, value in event.items()}


def _simple(value: object) -> str | int | float | bool | None:
    match value:
        case Enum():
            return _simple(value.value)
        case None | bool():
            return value
        case int():
            return int(value) if value in _INT64 else _simple_text(str(value))
        case float():
            return float(value)
        case str() | Path():
            return _simple_text(str(value))
    return f"<{type(value).__name__}>"


def _simple_text(text: str) -> str:
    whole = text.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8 form
    return whole if len(whole) <= MAX_TEXT else f"{whole[: MAX_TEXT - 3]}..."


def _json(_logger: object, _method: str, event: Event) -> str:
    return orjson.dumps(event).decode()


class _Stamp:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _logger: object, _method: str, event: Event) -> Event:
        moment = datetime.fromtimestamp(self._clock.now(), tz=UTC)
        return {"time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"), **event}


class StageTimer:
    """Where the time of one request or one run went: stage name -> seconds, in the order of their beginning."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times the block, also one that raises; a stage that comes again is added to."""
        self.seconds.setdefault(name, 0.0)
        start = self._clock.now()
        try:
            yield
        finally:
            self.add(name, self._clock.now() - start)

    def add(self, name: str, seconds: float) -> None:
        """Adds time that was measured elsewhere, such as a batch that several requests shared."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def server_timing(self) -> str:
        """The value of a ``Server-Timing`` header, in milliseconds: ``lookup;dur=0.412, forward;dur=1.034``."""
        return ", ".join(f"{name};dur={seconds * 1000:.3f}" for name, seconds in self.seconds.items())


class Metrics:
    """Every metric of the service, in base units. docs/metrics.md says the same, and a test holds them equal."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._requests = Counter(
            "forescore_requests_total", "Requests answered.", ["route", "status"], registry=registry
        )
        self._request_duration = Histogram(
            "forescore_request_duration_seconds",
            "Time from a request to its answer.",
            ["route"],
            registry=registry,
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
        )
        self._stage_duration = Histogram(
            "forescore_stage_duration_seconds",
            "Time of one stage of a request: lookup, features, encode, queue, forward, "
            "flight (joined a computation that another request began).",
            ["stage"],
            registry=registry,
            buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1),
        )
        self._lookups = Counter(
            "forescore_lookups_total", "Entities looked up in the store, by outcome.", ["outcome"], registry=registry
        )
        self._forward_rows = Histogram(
            "forescore_forward_rows",
            "Rows of one forward pass; its count is the number of passes.",
            registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        )
        self._queue_rows = Gauge(
            "forescore_queue_rows",
            "Rows that wait for a forward pass.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._shed_rows = Counter(
            "forescore_shed_rows_total",
            "Rows refused because more was waiting than could be scored in time, by reason.",
            ["reason"],
            registry=registry,
        )
        self._rejections = Counter(
            "forescore_rejections_total", "Rows rejected online, by code.", ["code"], registry=registry
        )
        self._write_backs = Counter(
            "forescore_write_backs_total",
            "Online scores offered to the active snapshot, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._source_failures = Counter(
            "forescore_feature_source_failures_total",
            "Questions to a feature source that failed or took too long.",
            ["source"],
            registry=registry,
        )
        self._breaker_open = Gauge(
            "forescore_breaker_open", "1 while the store is not asked because it failed.", registry=registry
        )
        self._pointer_age = Gauge(
            "forescore_pointer_age_seconds", "Time since the active pointer was last read.", registry=registry
        )
        self._snapshot_age = Gauge(
            "forescore_snapshot_age_seconds", "Time since the active snapshot was scored.", registry=registry
        )
        self._snapshot_info = Gauge(
            "forescore_snapshot_info",
            "1 for the active snapshot.",
            ["model", "model_version", "snapshot"],
            registry=registry,
        )
        self._parity_exact = Gauge(
            "forescore_parity_exact",
            "1 where cached and online scores are proved to be the same bits, 0 where they agree within a tolerance.",
            registry=registry,
        )

    def request(self, route: str, status: int, seconds: float, stages: StageTimer) -> None:
        """One answered request. ``route`` is the route's pattern, never the path with its id."""
        self._requests.labels(route, str(status)).inc()
        self._request_duration.labels(route).observe(seconds)
        for stage, spent in stages.seconds.items():
            self._stage_duration.labels(stage).observe(spent)

    def lookup(self, outcome: str, entities: int = 1) -> None:
        """Entities that were looked up: hit, stale, rejected, absent, lost, down."""
        self._lookups.labels(outcome).inc(entities)

    def forward(self, rows: int) -> None:
        """One forward pass."""
        self._forward_rows.observe(rows)

    def queue(self, rows: int) -> None:
        """Rows that wait for a forward pass."""
        self._queue_rows.set(rows)

    def shed(self, reason: str, rows: int) -> None:
        """Rows that were refused: queue_full, deadline."""
        self._shed_rows.labels(reason).inc(rows)

    def rejection(self, code: Code) -> None:
        """One row that was rejected online."""
        self._rejections.labels(code.text).inc()

    def write_back(self, outcome: str) -> None:
        """One online score: written, bucket_gone, over_budget, failed."""
        self._write_backs.labels(outcome).inc()

    def feature_source_failed(self, source: str) -> None:
        """One question to a feature source that brought no answer."""
        self._source_failures.labels(source).inc()

    def breaker(self, *, is_open: bool) -> None:
        """Whether the store is asked at all."""
        self._breaker_open.set(is_open)

    def ages(self, *, pointer: float, snapshot: float | None) -> None:
        """Seconds since the pointer was read and since the active snapshot was scored, if there is one."""
        self._pointer_age.set(pointer)
        self._snapshot_age.set(NO_SNAPSHOT if snapshot is None else snapshot)

    def active(self, *, model: str, model_version: str, snapshot: str, exact: bool) -> None:
        """Names the active snapshot in place of the one before, and whether online scores equal its scores."""
        self._snapshot_info.clear()
        self._snapshot_info.labels(model, model_version, snapshot).set(1)
        self._parity_exact.set(exact)
