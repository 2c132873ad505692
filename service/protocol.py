"""The fast lane's short cut: cache hits answered where the bytes come in, without a task for each request.

uvicorn's protocol parses the request, keeps the order of what is pipelined, the connection's life and its limits. One
step of it is replaced: a plain question is first looked up, with what else is asked in this turn of the event loop. Its
answer, if it is a hit, goes out in one write. A plain miss and a plain list of one row are scored together with the
others of their turn (``service.together``). Whatever else it is goes to the application, as all else does.
"""

import asyncio
import sys
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.again import Again, LateCycle, PostedAgain
from service.border import Answer, Border, Waiting, head_bytes
from service.guard import Guard
from service.lane import FastLane, Question
from service.passes import pass_of
from service.shedder import STATUS, Shedder
from service.underway import AskedMany, AskedOne

_CLOSE = b"connection: close\r\n"


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
        self._guard = cast("Guard | None", getattr(config.app, "guard", None))
        self._border = cast("Border | None", getattr(config.app, "border", None))
        self._shedder = cast("Shedder | None", getattr(config.app, "shedder", None))
        self._in_work = False
        self._most_head = sys.maxsize if self._border is None else self._border.most_head
        self._large = False
        self._pending = 0
        self._defaults: tuple[object, int, bytes] = (None, 0, b"")
        self._again: Again | None = None
        self._posted_again: PostedAgain | None = None
        self._rests_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Uvicorn's own step, and room for the connection, or a refusal."""
        super().connection_made(transport)
        border = self._border
        if border is None or len(self.connections) <= border.most_connections:
            return
        idle = next((one for one in self.connections if isinstance(one, HitProtocol) and one.is_idle(self)), None)
        if idle is not None:
            idle.transport.close()
        else:
            self._refuse(border.no_room())

    def data_received(self, data: bytes) -> None:
        """Uvicorn's own step, with a limit on what there is of a request that is not whole yet. It is not taken where
        the same was asked before but for the entity or the body (see ``service.again``)."""
        rests = self._rests()
        if rests and (self._asks_again(data) or self._posts_again(data)):
            return
        self._parse(data)
        if rests and self._is_whole() and not self.pipeline:
            scope = cast("Any", self.scope)
            self._again = Again.of(data, scope) or self._again
            self._posted_again = PostedAgain.of(data, scope) or self._posted_again

    def _rests(self) -> bool:
        """Whether what comes in begins a request, which can be answered at once."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None:
            return not self._has_begun()
        return (
            cycle.response_complete
            and cycle.scope is self.scope
            and not cycle.more_body
            and not self.pipeline
            and not self.flow.write_paused
        )

    def _asks_again(self, data: bytes) -> bool:
        """Takes a question that was asked before for another entity. False where it is to go the usual way."""
        again, lane = self._again, self._lane
        if again is None or lane is None or len(data) > self._most_head:
            return False
        entity = again.entity_in(data)
        if entity is None:
            return False
        scope = again.scope(entity, self.app_state)
        question = lane.question(scope)
        if question is None:
            return False
        self._ask(lane, question, self._begun(LateCycle(scope)), self.app)
        return True

    def _posts_again(self, data: bytes) -> bool:
        """The same for a list that came before with another body."""
        again, lane = self._posted_again, self._lane
        if again is None or lane is None:
            return False
        asked = again.asked_in(data)
        if asked is None or len(data) - len(asked[1]) > self._most_head:
            return False
        scope = again.scope(asked[0], self.app_state)
        if not lane.is_posting(scope):
            return False
        cycle = self._begun(LateCycle(scope, asked[1]))
        if self.goes_on(cycle):
            self._post(lane, cycle, self.app)
        return True

    def _begun(self, cycle: LateCycle) -> LateCycle:
        self.cycle, self.scope = cycle, cycle.scope
        return cycle

    def _parse(self, data: bytes) -> None:
        before = self.scope
        if len(data) > self._most_head:
            self._large = True
        super().data_received(data)
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and cycle.scope is self.scope and not cycle.more_body:
            self._pending = 0
        elif before is self.scope:
            self._pending += len(data)
            self._bound()
        else:  # it began somewhere in these bytes, of which there are never many
            self._pending = 0

    def _bound(self) -> None:
        if self._border is None or self.transport.is_closing():
            return
        if self._has_open_head() and self._pending > self._most_head:
            self._refuse(self._border.large_head())
        elif self._pending > self._border.most_bytes:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told as any other mistake is."""
        if self._border is None:
            super().send_400_response(msg)
        else:
            self._refuse(self._border.no_request())

    def _refuse(self, answer: Answer) -> None:
        """For the whole connection. Nothing is said in the middle of another answer."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            self.transport.write(answer[0] + self._default_lines() + answer[1])
        self.transport.close()

    def is_idle(self, newcomer: "HitProtocol") -> bool:
        """Whether nothing is under way on it, so that it can make room."""
        if self is newcomer or self.transport.is_closing():
            return False
        return not self._has_begun() or (self._is_answered() and not self.pipeline)

    def waiting(self) -> tuple[Waiting, object] | None:
        """For what it waits of its caller, and a token that changes when it waits for another."""
        if self.transport.is_closing() or self.flow.write_paused:
            return Waiting.READER, None
        if self.flow.read_paused:
            return None
        if self._has_open_head():
            return Waiting.HEAD, id(self.scope)
        if self._is_answered() and not self.pipeline and self.timeout_keep_alive_task is None:
            return Waiting.REST, id(self.cycle)
        return None

    def end(self, waiting: Waiting) -> None:
        """It has waited too long."""
        if waiting is Waiting.READER:
            self.transport.abort()
        elif waiting is Waiting.HEAD and self._has_begun() and self._border is not None:
            self._refuse(self._border.slow_head())
        else:
            self.transport.close()

    def _has_begun(self) -> bool:
        """Whether a byte of a request was ever there."""
        return cast("Any", self.scope) is not None

    def _has_open_head(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.scope is not self.scope

    def _is_whole(self) -> bool:
        return not self._has_open_head() and not self.cycle.more_body

    def _is_answered(self) -> bool:
        return not self._has_open_head() and self.cycle.response_complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Uvicorn's own step, taken at once for all that is no plain question."""
        scope = cast("Any", cycle.scope)
        lane = None if self.flow.write_paused else self._lane
        question = None if lane is None else lane.question(scope)
        if question is None and not self.goes_on(cycle):
            return
        if self._large and self._border is not None and head_bytes(cycle.scope) > self._most_head:
            cycle.response_complete = True
            self._refuse(self._border.large_head())
        elif lane is not None and question is not None:
            self._ask(lane, question, cycle, app)
        elif lane is not None and not cycle.waiting_for_100_continue and lane.is_posting(scope):
            self._post(lane, cycle, app)
        else:
            self._admits(scope)
            self.start_application(cycle, app)

    def _post(self, lane: FastLane, cycle: RequestResponseCycle, app: Any) -> None:
        """Has a list scored with others of this turn, where the guard lets it in at once."""
        scope = cast("Any", cycle.scope)
        if self._admits(scope):
            AskedMany(self, lane, cycle, app, pass_of(scope)).ask()
        else:
            self.start_application(cycle, app)

    def _ask(self, lane: FastLane, question: Question, cycle: RequestResponseCycle, app: Any) -> None:
        """Looks up what a plain question asks for, where that can be done at once."""
        scope = cast("Any", cycle.scope)
        if not self._admits(scope) or not AskedOne(self, lane, cycle, app, pass_of(scope)).ask(lane.landing, question):
            self._start_other(cycle, app)

    def _admits(self, scope: Any) -> bool:
        """False where the guard refuses, or must wait for its answer: the application goes on with it then."""
        return self._guard is None or self._guard.enter_now(scope)

    def _start_other(self, cycle: RequestResponseCycle, app: Any) -> None:
        """What is answered by the application, if there is no more of it than can be."""
        if self.goes_on(cycle):
            self.start_application(cycle, app)
        elif (passed := pass_of(cast("Any", cycle.scope))) is not None:
            passed.leave()

    def goes_on(self, cycle: RequestResponseCycle) -> bool:
        """Takes a request into work that may cost something. False where there is too much of that already: it is
        refused then."""
        if self._in_work or self._shedder is None:
            return True
        self._in_work = self._shedder.lets_in(cast("Any", cycle.scope))
        if not self._in_work:
            self._shed(cycle)
        return self._in_work

    def _shed(self, cycle: RequestResponseCycle) -> None:
        """In a turn of its own where others wait behind it, which begin within its end: of many, each in the last's."""
        if self.pipeline:
            self.loop.call_soon(self._turn_away, cycle)
        else:
            self._turn_away(cycle)

    def _turn_away(self, cycle: RequestResponseCycle) -> None:
        """Says that it is too much; to one who does not read, nothing."""
        if self._shedder is None or self.transport.is_closing():
            return
        if self.flow.write_paused:
            self.transport.close()
            return
        if cycle.waiting_for_100_continue:  # its body may come, or not
            cycle.keep_alive = False
        self.send_answer(cycle, STATUS, *self._shedder.refusal(cast("Any", cycle.scope)))

    def on_message_complete(self) -> None:
        """Uvicorn's own step, which leaves out what was answered before its end: nothing more is to come of that."""
        super().on_message_complete()
        if self.cycle.response_complete:
            self.cycle.more_body = False

    def on_response_complete(self) -> None:
        """Uvicorn's own step: the next one begins."""
        self._leave_work()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Uvicorn's own step."""
        self._leave_work()
        super().connection_lost(exc)

    def _leave_work(self) -> None:
        if self._in_work and self._shedder is not None:
            self._in_work = False
            self._shedder.left()

    def start_application(self, cycle: RequestResponseCycle, app: Any) -> None:
        """For a question that turned out not to be a plain hit."""
        if isinstance(cycle, LateCycle):
            cycle.fill(self)
        super()._start_asgi_task(cycle, app)

    def send_answer(self, cycle: RequestResponseCycle, status: int, head: bytes, body: bytes) -> None:
        """As the cycle would send it, header by header."""
        ours = self._default_lines()
        close = b""
        if _CLOSE in ours:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            close = _CLOSE
        self.transport.write(b"%b%b%b%b\r\n%b" % (STATUS_LINE[status], ours, head, close, body))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        if isinstance(cycle, LateCycle) and cycle.keep_alive and not self.pipeline:
            self._rest()
        else:
            self.on_response_complete()

    def _rest(self) -> None:
        """As ``on_response_complete`` for a request that stopped neither reading nor the timer: the one that runs is
        left to find out that it is early."""
        self._leave_work()
        self.server_state.total_requests += 1
        self._rests_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._wait(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Uvicorn's own step, unless something was asked since the timer was set."""
        self.timeout_keep_alive_task = None
        if not self._is_answered():
            return  # the answer sets it
        left = self._rests_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._wait(left)
        else:
            super().timeout_keep_alive_handler()

    def _wait(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _default_lines(self) -> bytes:
        """The server's own headers, which it makes anew each second, and adds to when it is about to end."""
        headers = self.server_state.default_headers
        if self._defaults[0] is not headers or self._defaults[1] != len(headers):
            self._defaults = (headers, len(headers), b"".join([b"%b: %b\r\n" % header for header in headers]))
        return self._defaults[2]
