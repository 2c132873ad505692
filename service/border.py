"""What a connection may cost before there is a request to answer: bytes, seconds, and that it is there at all.

uvicorn bounds how long an idle connection is kept after an answer, and nothing before it: a head that trickles in or
does not end, the body of a request that is answered already, a caller who does not read. Time is looked at for all
connections together, twice a second, so that a request pays nothing for it.
"""

import resource
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from service.doors import NO_ROUTE
from service.lines import RequestIds
from service.problems import retold
from service.runtime import Service
from shared.errors import BadRequest, HeadTooLarge, Overloaded, RequestError, RequestTooSlow
from shared.telemetry import StageTimer

LOOK_EVERY = 5
"""Of the server's ticks, of which there are ten a second."""
_SPREAD = 8
"""Chunks of a few bytes each may take so many times the body's own length."""
_OTHER_FILES = 256
"""That a process has open beside its connections."""

Answer = tuple[bytes, bytes]
"""The status line, and what follows the server's own headers."""


class Waiting(Enum):
    """For what a connection waits of its caller, if for anything. It may stay in no such state for long."""

    HEAD = "head"
    REST = "rest"
    """Of a request that is answered already."""
    READER = "reader"


class Connection(Protocol):
    """What can be asked of a connection, and done to it."""

    def waiting(self) -> tuple[Waiting, object] | None: ...

    def end(self, waiting: Waiting) -> None: ...


class Border:
    """The limits, and the answers of those who are over them: problems, as everywhere else, in bytes."""

    def __init__(self, service: Service) -> None:
        limits = service.settings.service
        self.most_head = limits.max_head_bytes
        self.most_bytes = limits.max_head_bytes + _SPREAD * limits.max_body_bytes
        self.most_connections = limits.max_connections
        self._service = service
        self._seconds = limits.receive_seconds
        self._ids = RequestIds()
        self._since: dict[Connection, tuple[object, float]] = {}
        self._ticks = 0

    def tick(self, connections: Collection[Connection], now: float) -> None:
        """Called on each tick of the server."""
        self._ticks += 1
        if self._ticks % LOOK_EVERY == 0:
            self.look(list(connections), now)

    def look(self, connections: Collection[Connection], now: float) -> None:
        """Ends those that have waited too long for the same thing."""
        since: dict[Connection, tuple[object, float]] = {}
        for connection in connections:
            waiting = connection.waiting()
            if waiting is None:
                continue
            before, at = self._since.get(connection, (waiting, now))
            since[connection] = (waiting, at if before == waiting else now)
            if before == waiting and now - at >= self._seconds:
                connection.end(waiting[0])
        self._since = since
        self._service.metrics.connections(len(connections))

    def no_room(self) -> Answer:
        most = self.most_connections
        error = Overloaded(f"more than {most} connections (FORESCORE_SERVICE__MAX_CONNECTIONS); try again later")
        return self._answer(error, "connections")

    def large_head(self) -> Answer:
        most = self.most_head
        error = HeadTooLarge(
            f"the head has more than {most} bytes (FORESCORE_SERVICE__MAX_HEAD_BYTES); send less in it"
        )
        return self._answer(error, "large_head")

    def slow_head(self) -> Answer:
        error = RequestTooSlow(
            f"the head was not there after {self._seconds:g} s (FORESCORE_SERVICE__RECEIVE_SECONDS); send it in one go"
        )
        return self._answer(error, "slow_head")

    def no_request(self) -> Answer:
        return self._answer(BadRequest("this is no HTTP request that can be read; check what sends it"), "no_request")

    def _answer(self, error: RequestError, reason: str) -> Answer:
        call_id, facts = self._ids.next(), dict[str, Any]()
        response = retold(error, call_id, facts, self._service.settings.service.retry_after_seconds)
        self._tell(error.status, reason, {"id": call_id, "route": NO_ROUTE, "status": error.status, **facts})
        headers = [*response.raw_headers, (b"x-request-id", call_id.encode())]
        if (b"connection", b"close") not in headers:
            headers.append((b"connection", b"close"))
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        return STATUS_LINE[error.status], b"%b\r\n%b" % (lines, bytes(response.body))

    def _tell(self, status: int, reason: str, facts: Mapping[str, Any]) -> None:
        service = self._service
        service.metrics.refused(reason)
        service.metrics.request(NO_ROUTE, status, 0.0, StageTimer(service.dependencies.monotonic))
        if service.lines.wanted(status):
            service.lines.tell(status, facts)


def head_bytes(scope: Mapping[str, Any]) -> int:
    """How long a head is, about."""
    path = len(scope["raw_path"]) + len(scope["query_string"])
    return path + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def allow_files(connections: int) -> None:
    """Raises this process's limit of open files, where it is too low for so many connections and may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
