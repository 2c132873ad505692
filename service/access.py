"""One log line for each request, and what every response carries: its id and where the time went."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, cast

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.lines import RequestIds, RequestLines
from service.lookup import Seen
from service.passes import Pass
from service.problems import unexpected
from service.tracing import Trace
from shared.clock import Clock
from shared.metrics import Metrics
from shared.telemetry import Logger, StageTimer

NO_ROUTE = "(none)"
CLIENT_GONE = 499
QUIET = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})
"""Asked by machines every few seconds: logged at level debug."""

_log: Logger = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Call:
    """One request while it runs. ``facts`` go into its log line: bounded words, never a feature value.

    ``start``: by the monotonic clock. ``seen``: what was looked up for it before it came to its route. ``route``: where
    no router tells it.
    """

    id: str
    start: float
    stages: StageTimer
    seen: Seen | None = None
    route: str | None = None
    status: int = CLIENT_GONE
    facts: dict[str, str | int | None] = field(default_factory=dict)
    passed: Pass | None = None
    trace: Trace | None = None


class AccessLog:
    """Middleware around everything else, so that nothing ends without its line."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, clock: Clock, lines: RequestLines | None = None) -> None:
        self.app = app
        self._metrics = metrics
        self._clock = clock
        self._lines = lines or RequestLines(metrics)
        self._ids = RequestIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call = self._call(scope.setdefault("state", {}))
        if call.trace is not None:
            call.trace.begin(scope)
        try:
            await self._answer(call, scope, receive, send)
        finally:
            self._tell(call, scope, self._clock.now() - call.start)

    def _call(self, state: MutableMapping[str, Any]) -> Call:
        """The request's own, which it may bring along from where it was looked at before."""
        call: Call | None = state.get("call")
        if call is None:
            call = state["call"] = Call(id=self._ids.next(), start=self._clock.now(), stages=StageTimer(self._clock))
        call.trace = Trace.current()
        call.passed = state.get("pass")
        if call.passed is not None and call.passed.key is not None:
            call.facts["key"] = call.passed.key
        return call

    async def _answer(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sign(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                call.status = message["status"]
                if call.trace is not None:  # its span ends with the last byte of the answer
                    call.trace.tell({"request_id": call.id, **call.facts}, call.stages.seconds)
                message["headers"] = [*message.get("headers", ()), *_headers(call)]
            await send(message)

        try:
            await self.app(scope, receive, sign)
        except Exception as error:
            _log.error("request failed", id=call.id, exc_info=error)
            call.facts["error"] = type(error).__name__
            if started:
                raise
            await unexpected(call.id)(scope, receive, sign)

    def _tell(self, call: Call, scope: Scope, seconds: float) -> None:
        route = call.route or str(getattr(scope.get("route"), "path_format", NO_ROUTE))
        self._metrics.request(route, call.status, seconds, call.stages)
        facts: dict[str, str | int | float | None] = {
            "id": call.id,
            "method": scope["method"],
            "route": route,
            "status": call.status,
            "duration_ms": round(seconds * 1000, 3),
        }
        if call.trace is not None:
            facts["trace_id"] = call.trace.id
        facts |= call.facts
        if route in QUIET:
            _log.debug("request", **facts)
        elif self._lines.wanted(call.status):
            self._lines.tell(call.status, facts)


def call_of(request: Request) -> Call:
    """The request as its log line will tell it."""
    return cast("Call", request.state.call)


def _headers(call: Call) -> list[tuple[bytes, bytes]]:
    headers = [(b"x-request-id", call.id.encode())]
    if call.stages.seconds:
        headers.append((b"server-timing", call.stages.server_timing().encode()))
    return headers
