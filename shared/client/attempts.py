"""One request, tried until it is answered or until trying again cannot help. It decides, and does no I/O.

A call is a generator. It yields what it wants done (``Send`` a request, ``Pause`` for some seconds), is sent what came
of it, and returns the result or raises a ``ForescoreProblem``. A driver does as it is told.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TypeVar

from shared.client.problems import NOT_CACHED, Problem, too_late, unexpected, unreachable
from shared.client.results import JsonObject, parse_problem
from shared.clock import Clock, MonotonicClock, WallClock
from shared.errors import SettingsError

T = TypeVar("T")

RETRIED = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Answers after which the same request may be sent again. No call of this API does more when it is made twice:
``POST /score`` only asks, ``PUT /features`` replaces."""

NOT_THIS_SERVICE = (ValueError, TypeError, KeyError, AttributeError)
"""What reading an answer raises that is of another form than expected."""

_OK = frozenset({HTTPStatus.OK})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """How patient the client is, and how it cuts bulk calls.

    The n-th pause is a random share of ``backoff_seconds * 2 ** (n - 1)``, at most of ``backoff_most_seconds``; where
    the service said Retry-After, it is that. ``slab_items`` and ``slab_bytes`` stay below the service's own limits
    (FORESCORE_SERVICE__MAX_ITEMS and FORESCORE_SERVICE__MAX_BODY_BYTES); ``concurrency`` is how many requests of one
    bulk call the asynchronous client has under way.
    """

    attempts: int = 3
    connect_seconds: float = 1.0
    backoff_seconds: float = 0.1
    backoff_most_seconds: float = 2.0
    slab_items: int = 500
    slab_bytes: int = 1_000_000
    concurrency: int = 4

    def __post_init__(self) -> None:
        counts = (self.attempts, self.slab_items, self.slab_bytes, self.concurrency)
        if min(counts) < 1 or min(self.connect_seconds, self.backoff_seconds, self.backoff_most_seconds) <= 0:
            raise SettingsError("client policy: every count is at least 1, and every number of seconds is above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the client takes from the machine it runs on; tests give their own."""

    monotonic: Clock = field(default_factory=MonotonicClock)
    wall: Clock = field(default_factory=WallClock)
    random: Callable[[], float] = random.random
    sleep: Callable[[float], None] = time.sleep
    sleep_async: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request; ``answers`` are the statuses that bring what was asked for."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    answers: frozenset[int] = _OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send this within so many seconds, some of them for the connection; then tell the ``Reply`` or ``Failed``."""

    ask: Ask
    seconds: float
    connect_seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so long."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer; the names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """No answer: the time was over (``late``), or the connection could not be made or broke."""

    why: str
    late: bool = False


Event = Reply | Failed | None
Call = Generator[Send | Pause, Event, T]


class Attempts:
    """Sends requests to one service, as often as its policy says and the time allows."""

    def __init__(self, where: str, *, timeout: float, policy: ClientPolicy, machine: Machine) -> None:
        self.where = where
        self._timeout = checked_timeout(timeout)
        self._policy = policy
        self._machine = machine

    def make(self, ask: Ask, timeout: float | None, attempts: int | None = None) -> Call[Reply]:
        """A reply of a status that ``ask`` hopes for; raises what stood in its way the last time."""
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        most = attempts or self._policy.attempts
        deadline = self._machine.monotonic.now() + seconds
        tries = 0
        while True:
            left = deadline - self._machine.monotonic.now()
            event = yield Send(ask=ask, seconds=left, connect_seconds=min(left, self._policy.connect_seconds))
            tries += 1
            if isinstance(event, Reply) and event.status in ask.answers:
                return event
            problem = self._problem(event, seconds, tries)
            pause = self._pause(problem, tries)
            left = deadline - self._machine.monotonic.now()
            if problem.type == NOT_CACHED or not _may_help(event) or tries >= most or pause >= left:
                raise problem.error()
            yield Pause(pause)

    def told(self, reply: Reply) -> Problem:
        """What an answer says that is not what was asked for; a proxy's own words are not repeated."""
        call_id = reply.headers.get("x-request-id")
        later = retry_after(reply.headers.get("retry-after"), self._machine.wall)
        try:
            return parse_problem(json_object(reply), error_id=call_id, status=reply.status, retry_after=later)
        except NOT_THIS_SERVICE:
            pass
        if reply.status not in RETRIED:
            return unexpected(reply.status, f"{self.where} answered {reply.status} in a form of its own")
        phrase = HTTPStatus(reply.status).phrase
        return Problem(
            status=reply.status,
            type=phrase.lower().replace(" ", "-"),
            title=phrase,
            detail=f"{self.where} answered {reply.status}, and it was not the service itself that said so",
            error_id=call_id,
            retry_after=later,
        )

    def _problem(self, event: Event, seconds: float, tries: int) -> Problem:
        match event:
            case Reply():
                return self.told(event)
            case Failed(late=True):
                return too_late(seconds, tries)
            case Failed(why=why):
                return unreachable(self.where, why, tries)
        raise AssertionError("a driver tells what came of each request")

    def _pause(self, problem: Problem, tries: int) -> float:
        """As long as the service said, else exponential with full jitter, so that not all clients come at once."""
        if problem.retry_after is not None:
            return problem.retry_after
        most = min(self._policy.backoff_most_seconds, self._policy.backoff_seconds * 2.0 ** min(tries - 1, 30))
        return self._machine.random() * most


def checked_timeout(seconds: float) -> float:
    """SettingsError for a time in which nothing can be done."""
    if not seconds > 0:
        raise SettingsError("client: a timeout is a number of seconds above 0")
    return seconds


def json_object(reply: Reply) -> JsonObject:
    """The body of an answer; ValueError or TypeError where it is not an object of JSON."""
    body = json.loads(reply.body)
    if not isinstance(body, dict):
        raise TypeError("not an object")
    return body


def retry_after(text: str | None, wall: Clock) -> float | None:
    """Seconds to wait as Retry-After has it, in seconds or as a date (RFC 9110, section 10.2.3)."""
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return float(text)
    try:
        moment: datetime = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - wall.now())


def _may_help(event: Event) -> bool:
    match event:
        case Reply(status=status):
            return status in RETRIED
        case Failed(late=late):
            return not late
    return False
