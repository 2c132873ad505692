"""The fast lane's short cut: cache hits answered where the bytes come in, without a task for each request.

uvicorn's protocol parses the request, keeps the order of what is pipelined, the connection's life and its limits. One
step of it is replaced: a plain question is first looked up, with what else is asked in this turn of the event loop. Its
answer, if it is a hit, goes out in one write; whatever else it is goes to the application, as all else does.
"""

import asyncio
from typing import Any, cast

import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.landing import Landing
from service.lane import FastLane, Question, head_of, seen_in
from service.lane_answers import Hit
from shared.snapshot import Absent, Lost
from shared.telemetry import Logger

_CLOSE = b"connection: close\r\n"

_log: Logger = structlog.get_logger()


class HitProtocol(HttpToolsProtocol):
    """Answers hits through the lane of the application that it serves, if that has one."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._lane = cast("FastLane | None", getattr(config.app, "lane", None))
        self._landing: Landing | None = None if self._lane is None else self._lane.landing
        self._defaults: tuple[object, int, bytes] = (None, 0, b"")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Uvicorn's own step, taken at once for all that is no plain question."""
        lane, landing = self._lane, self._landing
        question = None if lane is None or self.flow.write_paused else lane.question(cast("Any", cycle.scope))
        if lane is None or landing is None or question is None:
            super()._start_asgi_task(cycle, app)
            return
        waiting = _Waiting(self, lane, landing, cycle, app, question)
        if not question.live.store.reader.peek_for(question.active.meta, question.asked.id, waiting):
            super()._start_asgi_task(cycle, app)

    def start_application(self, cycle: RequestResponseCycle, app: Any) -> None:
        """For a question that turned out not to be a plain hit."""
        super()._start_asgi_task(cycle, app)

    def send_hit(self, cycle: RequestResponseCycle, hit: Hit) -> None:
        """As the cycle would send it, header by header."""
        ours = self._default_lines()
        close = b""
        if _CLOSE in ours:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            close = _CLOSE
        self.transport.write(b"%b%b%b%b\r\n%b" % (STATUS_LINE[hit.status], ours, head_of(hit), close, hit.body))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def _default_lines(self) -> bytes:
        """The server's own headers, which it makes anew each second, and adds to when it is about to end."""
        headers = self.server_state.default_headers
        if self._defaults[0] is not headers or self._defaults[1] != len(headers):
            self._defaults = (headers, len(headers), b"".join([b"%b: %b\r\n" % header for header in headers]))
        return self._defaults[2]


class _Waiting:
    """One question under way: a ``Peeker``, and a ``Lander`` once it is answered."""

    __slots__ = ("_app", "_cycle", "_landing", "_lane", "_protocol", "_question", "_value")

    def __init__(
        self,
        protocol: HitProtocol,
        lane: FastLane,
        landing: Landing,
        cycle: RequestResponseCycle,
        app: Any,
        question: Question,
    ) -> None:
        self._protocol = protocol
        self._lane = lane
        self._landing = landing
        self._cycle = cycle
        self._app = app
        self._question = question
        self._value: bytes | Absent | Lost = b""

    def found(self, value: bytes | Absent | Lost) -> None:
        self._value = value
        self._landing.add(self)

    def prepare(self) -> Hit | None:
        """What to answer; None where that is not for the lane."""
        if self._cycle.disconnected:
            return None
        try:
            return self._lane.hit(self._question, self._value, cast("Any", self._cycle.scope)["headers"])
        except Exception as error:  # noqa: BLE001 - the application meets it too, and says so to the caller
            _log.error("hit not answered", exc_info=error)
            return None

    def land(self, hit: Hit | None) -> None:
        """Answers, or lets the application answer."""
        cycle = self._cycle
        if cycle.disconnected:
            self._lane.gone(self._question)
        elif hit is None:
            self._lane.hand_over(cast("Any", cycle.scope), self._question, seen_in(self._question, self._value))
            self._protocol.start_application(cycle, self._app)
        else:
            self._protocol.send_hit(cycle, hit)
            self._lane.tell(self._question, hit)

    def failed(self) -> None:
        """The application asks again, and tells what it hears."""
        self._lane.hand_over(cast("Any", self._cycle.scope), self._question)
        self._protocol.start_application(self._cycle, self._app)
