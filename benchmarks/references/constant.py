"""Bare uvicorn: an ASGI app that answers every request with the same bytes, as long as a score's answer."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]

BODY = b"""{"entity_id":"N00000001","scores":{"churn":0.5810123},"prediction":{"churn":true},"model":"churn",\
"model_version":"2026.11.1","snapshot":"2026.11.1-01M8NSX9G68JY8ETRR7Y8FFXC0","source":"cache",\
"scored_at":"2026-11-30T02:00:41Z","data_as_of":"2026-11-30T00:00:00Z","age_seconds":14400,"parity":"exact"}"""
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))],
}
REST = {"type": "http.response.body", "body": BODY}


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] == "http":
        await send(START)
        await send(REST)
    elif scope["type"] == "lifespan":
        await _live(receive, send)


async def _live(receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    while (message := await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": f"{message['type']}.complete"})
