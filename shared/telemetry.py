"""What a process tells about itself: log lines and stage timings. Never a feature value.

Importing this does nothing: an entry point calls ``configure_logging`` once.
"""

import logging
import sys
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

import orjson
import structlog
from structlog.typing import FilteringBoundLogger, Processor

from shared.clock import Clock, WallClock
from shared.errors import ForescoreError
from shared.settings import Settings

Logger = FilteringBoundLogger
Event = MutableMapping[str, Any]

MAX_TEXT = 300
MICROS = 1_000_000
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
        logger_factory=structlog.WriteLoggerFactory(stream),  # with its end at once: other processes write there too
        cache_logger_on_first_use=False,
    )
    logger: Logger = structlog.get_logger()
    return logger


class LibraryHandler(logging.Handler):
    """Turns what libraries log into events of ours: who spoke and where, and the words only of those known to be safe.

    A library's message may hold an exception's text, and that a feature value. ``uvicorn`` tells of itself, and
    ``fastapi`` of how its telemetry is set up.
    """

    def __init__(self, logger: Logger, speakers: tuple[str, ...] = ("uvicorn", "fastapi")) -> None:
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
    return {
        simple_text(name): simple_text(value) if type(value) is str else _simple(value)  # most are texts
        for name, value in event.items()
    }


def _simple(value: object) -> str | int | float | bool | None:
    match value:
        case Enum():
            return _simple(value.value)
        case None | bool():
            return value
        case int():
            return int(value) if value in _INT64 else simple_text(str(value))
        case float():
            return float(value)
        case str() | Path():
            return simple_text(str(value))
    return f"<{type(value).__name__}>"


def simple_text(text: str) -> str:
    """A text as lines have it: whole, and not too long."""
    whole = text if text.isascii() else text.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8 form
    return whole if len(whole) <= MAX_TEXT else f"{whole[: MAX_TEXT - 3]}..."


def _json(_logger: object, _method: str, event: Event) -> str:
    return orjson.dumps(event).decode()


class _Stamp:
    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self._second = -1
        self._text = ""

    def __call__(self, _logger: object, _method: str, event: Event) -> Event:
        return {"time": self.text(self.now()), **event}

    def text(self, now: float) -> str:
        """The time to the millisecond: ``2026-11-30T02:00:41.250Z``."""
        second = int(now)
        micros = round((now - second) * MICROS)
        if not 0 <= micros < MICROS:  # a time before the epoch, or one that rounds up to the next second
            return _milliseconds(now)
        if second != self._second:
            self._second, self._text = second, _milliseconds(second)[:-4]
        return f"{self._text}{micros // 1000:03d}Z"


def _milliseconds(moment: float) -> str:
    return datetime.fromtimestamp(moment, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLines:
    """Where lines go that somebody renders by himself, since he knows their form: as JSON, and as it is configured.

    ``now`` is the clock's time and ``stamp`` how a line tells it; ``bound`` is what every line of this process says
    behind its event, as members of an object; ``write`` takes whole lines, without the last line's end.
    """

    now: Callable[[], float]
    stamp: Callable[[float], str]
    bound: str
    write: Callable[[str], object]


def plain_lines() -> PlainLines | None:
    """None where lines of level info are not written, or not as JSON: then a logger must be asked."""
    config = structlog.get_config()
    first_to_last = config["processors"]
    stamp = next((one for one in first_to_last if isinstance(one, _Stamp)), None)
    if stamp is None or first_to_last[-1] is not _json or not structlog.get_logger().is_enabled_for(logging.INFO):
        return None
    bound = orjson.dumps(only_simple(None, "", structlog.contextvars.get_contextvars())).decode()[1:-1]
    return PlainLines(
        now=stamp.now, stamp=stamp.text, bound=f",{bound}" if bound else "", write=config["logger_factory"]().msg
    )


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

    def add_all(self, other: "StageTimer") -> None:
        """Adds the stages of work that several requests shared."""
        for name, seconds in other.seconds.items():
            self.add(name, seconds)

    def server_timing(self) -> str:
        """The value of a ``Server-Timing`` header, in milliseconds: ``lookup;dur=0.412, forward;dur=1.034``."""
        return ", ".join(f"{name};dur={seconds * 1000:.3f}" for name, seconds in self.seconds.items())
