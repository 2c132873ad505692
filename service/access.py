"""One log line for each request, and what every response carries: its id and where the time went."""

import secrets
from dataclasses import dataclass, field

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import unexpected
from shared.clock import Clock
from shared.telemetry import Logger, Metrics, StageTimer

NO_ROUTE = "(none)"
CLIENT_GONE = 499
QUIET = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})
"""Asked by machines every few seconds: logged at level debug."""

_log: Logger = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Call:
    """One request while it runs. ``facts`` go into its log line: bounded words, never a feature value."""

    id: str
    stages: StageTimer
    status: int = CLIENT_GONE
    facts: dict[str, str | int | None] = field(default_factory=dict)


class AccessLog:
    """Middleware around everything else, so that nothing ends without its line."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, clock: Clock) -> None:
        self.app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call = Call(id=secrets.token_hex(8), stages=StageTimer(self._clock))
        scope.setdefault("state", {})["call"] = call
        start = self._clock.now()
        try:
            await self._answer(call, scope, receive, send)
        finally:
            self._tell(call, scope, self._clock.now() - start)

    async def _answer(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sign(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                call.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_headers(call)]
            await send(message)

        try:
            await self.app(scope, receive, sign)
        except Exception as error:
            _log.error("request failed", id=call.id, exc_info=error)
            if started:
                raise
            await unexpected(call.id)(scope, receive, sign)

    def _tell(self, call: Call, scope: Scope, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", NO_ROUTE)
        self._metrics.request(route, call.status, seconds, call.stages)
        log = _log.debug if route in QUIET else _log.info
        log(
            "request",
            id=call.id,
            method=scope["method"],
            route=route,
            status=call.status,
            duration_ms=round(seconds * 1000, 3),
            **call.facts,
        )


def _headers(call: Call) -> list[tuple[bytes, bytes]]:
    headers = [(b"x-request-id", call.id.encode())]
    if call.stages.seconds:
        headers.append((b"server-timing", call.stages.server_timing().encode()))
    return headers
