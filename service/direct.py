"""Questions about scores, answered without the framework, whose way to a route costs more than a forward pass does.

They go through the same functions as the routes, and so the answers are the same bytes; a contract suite holds them so.
"""

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from service.access import call_of
from service.exchange import MANY, ONE, Reply, many, one
from service.problems import retold
from service.runtime import Service
from shared.errors import RequestError, SnapshotError, StoreError


class Direct:
    """Answers ``GET /score/{entity_id}`` and ``POST /score``; ``AccessLog`` around it brings the ``Call``."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._retry_after = service.settings.service.retry_after_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        call = call_of(request)
        is_one = scope["method"] == "GET"
        call.route = ONE if is_one else MANY
        try:
            reply = await (one if is_one else many)(self._service, request)
        except (RequestError, SnapshotError, StoreError) as error:
            await retold(error, call.id, call.facts, self._retry_after)(scope, receive, send)
        else:
            await _send(send, reply)


async def _send(send: Send, reply: Reply) -> None:
    """As Starlette's own response does, header by header."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
    if reply.media_type is not None:
        headers.append((b"content-length", b"%d" % len(reply.body)))
        headers.append((b"content-type", reply.media_type.encode("latin-1")))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
