"""Requests that are answered where the bytes come in, from their first look-up to their answer.

Each ends in one of two ways: it is answered here, and its line is told and its pass handed back, or the application
goes on with it and does both.
"""

from typing import Any, Protocol, cast

import structlog
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.landing import Landing, Moment
from service.lane import FastLane, Question, head_of, seen_in
from service.lane_answers import Hit
from service.online_answers import Missed, Posted, Sent
from service.passes import Pass
from shared.snapshot import Absent, Active, Lost
from shared.telemetry import Logger

_log: Logger = structlog.get_logger()


class Connection(Protocol):
    """The protocol, as a request sees it."""

    def send_answer(self, cycle: RequestResponseCycle, status: int, head: bytes, body: bytes) -> None: ...

    def goes_on(self, cycle: RequestResponseCycle) -> bool: ...

    def start_application(self, cycle: RequestResponseCycle, app: Any) -> None: ...


class Underway:
    """What every such request has: its connection, its lane, itself, the application behind, and what it was let in
    with, if there is a guard."""

    __slots__ = ("_app", "_connection", "_cycle", "_key", "_lane", "_passed")

    def __init__(
        self, connection: Connection, lane: FastLane, cycle: RequestResponseCycle, app: Any, passed: Pass | None
    ) -> None:
        self._connection = connection
        self._lane = lane
        self._cycle = cycle
        self._app = app
        self._passed = passed
        self._key = None if passed is None else passed.key

    def _to_application(self) -> None:
        """Lets the application answer, which hands the pass back too."""
        self._connection.start_application(self._cycle, self._app)

    def _end(self) -> None:
        """Hands the pass back: the application never sees it."""
        if self._passed is not None:
            self._passed.leave()


class AskedOne(Underway):
    """A question: a ``Peeker``, a ``Lander`` once it is answered, and ``together.Missing`` if the answer is that."""

    __slots__ = ("_is_sent", "_landing", "_question", "_value", "missed")

    missed: Missed

    def ask(self, landing: Landing, question: Question) -> bool:
        """False where it cannot be looked up just now."""
        self._landing = landing
        self._question = question
        return question.live.store.reader.peek_for(question.active.meta, question.asked.id, self)

    def found(self, value: bytes | Absent | Lost) -> None:
        self._value = value
        self._landing.add(self)

    def prepare(self, moment: Moment) -> Hit | None:
        """What to answer; None where that is not for the lane."""
        if self._cycle.disconnected:
            return None
        try:
            return self._lane.hit(self._question, self._value, moment, self._key)
        except Exception as error:  # noqa: BLE001 - the application meets it too, and says so to the caller
            _log.error("hit not answered", exc_info=error)
            return None

    @property
    def active(self) -> Active:
        return self._question.active

    def land(self, hit: Hit | None) -> None:
        """Answers, or lets others answer."""
        if self._cycle.disconnected:
            self._gone()
        elif hit is not None:
            self._connection.send_answer(self._cycle, hit.status, head_of(hit), hit.body)
            self._lane.tell(self._question, hit)
            self._end()
        elif not self._connection.goes_on(self._cycle):
            self._end()
        elif isinstance(self._value, Absent) and self._is_plain():
            self._lane.together.miss(self)
        else:
            self.leave()

    def _is_plain(self) -> bool:
        missed = self._lane.missed(self._question, self._key)
        if missed is None:
            return False
        self.missed = missed
        return True

    def send(self, sent: Sent) -> None:
        """What was computed for it."""
        self._is_sent = not self._cycle.disconnected
        if self._is_sent:
            self._connection.send_answer(self._cycle, sent.told.status, sent.head, sent.body)

    def tell(self, sent: Sent) -> None:
        """That it was answered, or that nobody was there any more."""
        if self._is_sent:
            self._lane.told(sent.told, self._question.start)
            self._end()
        else:
            self._gone()

    def _gone(self) -> None:
        self._lane.gone(self._question, self._key)
        self._end()

    def leave(self) -> None:
        """The application goes on with what was found."""
        self._lane.hand_over(cast("Any", self._cycle.scope), self._question, seen_in(self._question, self._value))
        self._to_application()

    def failed(self) -> None:
        """The application asks again, and tells what it hears."""
        if not self._connection.goes_on(self._cycle):
            self._end()
            return
        self._lane.hand_over(cast("Any", self._cycle.scope), self._question)
        self._to_application()


class AskedMany(Underway):
    """A list: ``together.Posting``."""

    __slots__ = ("_is_sent", "_start")

    def ask(self) -> None:
        """Has it scored with others, if it is plain."""
        self._start = self._lane.now()
        self._lane.together.post(self)

    def posted(self) -> Posted | None:
        """None too where its body is so long that the connection is not read on until somebody takes it."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or len(cycle.body) > HIGH_WATER_LIMIT:
            return None
        return self._lane.posted(bytes(cycle.body), self._start, self._key)

    def send(self, sent: Sent) -> None:
        """What was computed for it."""
        self._is_sent = not self._cycle.disconnected
        if self._is_sent:
            self._connection.send_answer(self._cycle, sent.told.status, sent.head, sent.body)

    def tell(self, sent: Sent) -> None:
        """That it was answered, or that nobody was there any more."""
        if self._is_sent:
            self._lane.told(sent.told, self._start)
        else:
            self._lane.posting_gone(self._start, self._key)
        self._end()

    def leave(self) -> None:
        """The application reads the body, and answers."""
        self._lane.hand_over_since(cast("Any", self._cycle.scope), self._start)
        self._to_application()
