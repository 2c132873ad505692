"""A head that is the last one's but for the id, or for the length of the body: a caller who keeps his connection sends
the same bytes again and again.

What the parser makes of them was made once. Where all that comes in is a whole request, byte for byte the last one's
except for a plain id, or for a body and its length, its scope is made of the last one's. Whatever else comes in is the
parser's. It does not miss what it is not shown: it stands between two requests before and after.
"""

import asyncio
import re
from typing import TYPE_CHECKING, Any, Self, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_START = b"GET /score/"
_POST = b"POST /score HTTP/1.1\r\n"
_END = b"\r\n\r\n"
_ID = re.compile(rb"[A-Za-z0-9._~:@!$&'()*+,;=-]{1,256}")
"""What may stand in a path as it is, and means itself."""
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,9})(?=\r\n)", re.IGNORECASE)
_DIGITS = 9
_OF_THE_CONNECTION = frozenset(
    {b"connection", b"content-length", b"expect", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
"""Headers that say what comes after the head. A head that has one is parsed each time."""
_STAYS = (b"connection", b"keep-alive")
_MEASURED = b"content-length"


class Again:
    """The last head. ``tail``: its bytes behind the id."""

    __slots__ = ("_scope", "_stop", "tail")

    def __init__(self, tail: bytes, scope: dict[str, Any]) -> None:
        self.tail = tail
        self._stop = -len(tail)
        self._scope = scope

    @classmethod
    def of(cls, data: bytes, scope: dict[str, Any]) -> Self | None:
        """From all that came in between two requests, and what the parser made of it; None where it may not be
        taken for a sample."""
        if not data.startswith(_START) or data.find(_END) != len(data) - len(_END) or scope["http_version"] != "1.1":
            return None
        if _says_what_follows(scope["headers"]):
            return None
        return cls(data[data.index(b" ", len(_START)) :], scope)

    def entity_in(self, data: bytes) -> bytes | None:
        """The id that is asked for, where the head is the same but for that."""
        if not data.startswith(_START) or not data.endswith(self.tail):
            return None
        entity = data[len(_START) : self._stop]
        return entity if _ID.fullmatch(entity) else None

    def scope(self, entity: bytes, state: dict[str, Any]) -> dict[str, Any]:
        """What the parser would have made."""
        raw = b"/score/" + entity
        return {
            **self._scope,
            "path": raw.decode("ascii"),
            "raw_path": raw,
            "query_string": b"",
            "headers": self._scope["headers"].copy(),
            "state": state.copy(),
        }


class PostedAgain:
    """The last head of a list. ``before`` and ``after``: its bytes around the digits of the body's length."""

    __slots__ = ("_place", "_scope", "after", "before")

    def __init__(self, before: bytes, after: bytes, scope: dict[str, Any], place: int) -> None:
        self.before = before
        self.after = after
        self._scope = scope
        self._place = place

    @classmethod
    def of(cls, data: bytes, scope: dict[str, Any]) -> Self | None:
        """As ``Again.of``, from a head with its whole body."""
        end = data.find(_END) + len(_END)
        if not data.startswith(_POST) or end < len(_POST):
            return None
        lengths = list(_LENGTH.finditer(data, 0, end))
        headers = scope["headers"]
        places = [place for place, (name, _) in enumerate(headers) if name == _MEASURED]
        if len(lengths) != 1 or len(places) != 1 or len(data) != end + int(lengths[0][1]):
            return None
        if _says_what_follows(headers[: places[0]] + headers[places[0] + 1 :]):
            return None
        start, stop = lengths[0].span(1)
        return cls(data[:start], data[stop:end], {**scope, "headers": headers.copy()}, places[0])

    def asked_in(self, data: bytes) -> tuple[bytes, bytes] | None:
        """The length of the body, as it is written, and the body, where the head is the same but for that."""
        if not data.startswith(self.before):
            return None
        start = len(self.before)
        stop = data.find(b"\r", start, start + _DIGITS + 1)
        if stop < 0 or not data.startswith(self.after, stop):
            return None
        length, body = data[start:stop], data[stop + len(self.after) :]
        whole = length.isdigit() and 0 < len(body) == int(length)
        return (length, body) if whole and len(body) <= HIGH_WATER_LIMIT else None

    def scope(self, length: bytes, state: dict[str, Any]) -> dict[str, Any]:
        """What the parser would have made."""
        headers = self._scope["headers"].copy()
        headers[self._place] = (_MEASURED, length)
        return {**self._scope, "headers": headers, "state": state.copy()}


def _says_what_follows(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name in _OF_THE_CONNECTION and (name, value.lower()) != _STAYS for name, value in headers)


class _Unheard:
    """Of an event for which nobody waits."""

    def set(self) -> None: ...


class LateCycle(RequestResponseCycle):
    """uvicorn's bookkeeping of a request, most of which is not made unless the application comes to answer it."""

    disconnected = False
    waiting_for_100_continue = False
    more_body = False
    response_started = False
    response_complete = False
    keep_alive = True
    message_event = cast("asyncio.Event", _Unheard())

    def __init__(self, scope: dict[str, Any], body: bytes = b"") -> None:
        self.scope = cast("Any", scope)
        self.body = bytearray(body)

    def fill(self, protocol: "HttpToolsProtocol") -> None:
        """Makes the rest, as ``HttpToolsProtocol.on_headers_complete`` and ``on_message_complete`` do."""
        disconnected, body = self.disconnected, self.body
        super().__init__(
            scope=self.scope,
            transport=protocol.transport,
            flow=protocol.flow,
            logger=protocol.logger,
            access_logger=protocol.access_logger,
            access_log=protocol.access_log,
            default_headers=protocol.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=self.keep_alive,
            on_response=protocol.on_response_complete,
        )
        self.disconnected, self.body = disconnected, body
        self.more_body = False
        self.message_event.set()
