"""Both kinds of client, called alike, and a service for them: played by a script, or real."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import httpx2
from support.publish import publish
from support.servers import HOST, ValkeyProcess
from support.services import ready_process
from support.stores import settings_for

from shared.client.attempts import ClientPolicy, Machine
from shared.client.clients import AsyncForescoreClient, ForescoreClient
from shared.scorer import Scorer
from shared.store.connect import open_store
from shared.testing.clock import FrozenClock

Kind = Literal["sync", "async"]
KINDS: tuple[Kind, ...] = ("sync", "async")
URL = "http://scores.test:8000"
NOW = datetime(2026, 11, 30, 2, 0, 41, tzinfo=UTC)
Played = httpx2.Response | Exception

ROWS = {
    "0": {"visits": 1, "returns": 0, "basket": 2},
    "1": {"visits": 0, "returns": 3, "basket": 1},
    "2": {"visits": 2, "returns": 1, "basket": 0},
    "3": {"visits": 1, "returns": 1, "basket": 1},
}
SCORES = {"0": 0.8581, "1": 0.31, "2": 0.7311, "3": 0.69}


@dataclass
class Script:
    """A service that answers as was planned, in order; the last answer stays. It keeps what it was asked."""

    played: list[Played]
    asked: list[httpx2.Request] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        answer = self.played.pop(0) if len(self.played) > 1 else self.played[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)

    @property
    def paths(self) -> list[str]:
        return [request.url.raw_path.decode() for request in self.asked]


@dataclass
class StandIn:
    """A machine without time: pauses are written down, take no time, and move the clocks."""

    pauses: list[float] = field(default_factory=list)
    chance: float = 0.5
    monotonic: FrozenClock = field(default_factory=lambda: FrozenClock(1000))
    wall: FrozenClock = field(default_factory=lambda: FrozenClock(NOW.timestamp()))

    def machine(self) -> Machine:
        async def sleep_async(seconds: float) -> None:
            self._sleep(seconds)

        return Machine(
            monotonic=self.monotonic,
            wall=self.wall,
            random=lambda: self.chance,
            sleep=self._sleep,
            sleep_async=sleep_async,
        )

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.monotonic.advance(seconds)
        self.wall.advance(seconds)


def call(
    kind: Kind, url: str, method: str, *arguments: Any, options: Mapping[str, Any] | None = None, **words: Any
) -> Any:
    """One call of a client that is opened for it and closed after it; ``options`` make the client."""
    options = options or {}
    if kind == "sync":
        with ForescoreClient(url, **options) as client:
            return getattr(client, method)(*arguments, **words)

    async def called() -> Any:
        async with AsyncForescoreClient(url, **options) as client:
            return await getattr(client, method)(*arguments, **words)

    return asyncio.run(called())


def played(
    kind: Kind,
    script: Callable[[httpx2.Request], httpx2.Response],
    method: str,
    *arguments: Any,
    stand_in: StandIn | None = None,
    policy: ClientPolicy | None = None,
    key: str | None = None,
    url: str = URL,
    **words: Any,
) -> Any:
    """A call that a script answers, on a machine without time."""
    options = {
        "transport": httpx2.MockTransport(script),
        "machine": (stand_in or StandIn()).machine(),
        "policy": policy or ClientPolicy(),
        "api_key": key,
    }
    return call(kind, url, method, *arguments, options=options, **words)


def score_body(entity_id: str | None = "a", **changes: Any) -> dict[str, Any]:
    """A score as the service writes it."""
    return {
        "entity_id": entity_id,
        "scores": {"buys": 0.8581489},
        "prediction": {"buys": True},
        "model": "purchase",
        "model_version": "1",
        "snapshot": "1-A",
        "source": "cache",
        "scored_at": "2026-11-30T02:00:41Z",
        "data_as_of": None,
        "age_seconds": 14400,
        "parity": "exact",
        **changes,
    }


def problem_body(slug: str, status: int, **members: Any) -> dict[str, Any]:
    """A problem as the service writes it."""
    given = {"title": slug.title(), "status": status, "detail": "so it is", "instance": "urn:forescore:request:77aa"}
    return {"type": f"urn:forescore:problem:{slug}", **given, **members}


def answer(body: object = None, status: int = 200, **headers: str) -> httpx2.Response:
    """A response; ``retry_after="2"`` is a header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, headers=named, content=b"" if body is None else json.dumps(body).encode())


def refusal(slug: str, status: int, *, later: str | None = None, **members: Any) -> httpx2.Response:
    """A problem as a response."""
    headers = {} if later is None else {"retry_after": later}
    return answer(problem_body(slug, status, **members), status, **headers)


@contextmanager
def dripping_server() -> Iterator[int]:
    """A port that answers one connection with a byte every 20 ms, until the other side has had enough."""

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.settimeout(0.02)
            with contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not _has_ended(connection):
                    connection.sendall(b" ")

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join(timeout=10)


def _has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False


@contextmanager
def live_service(
    folder: Path, valkey: ValkeyProcess, scorer: Scorer, rows: Mapping[str, Any], **given: str
) -> Iterator[str]:
    """The address of a real service, in a process of its own, that serves the rows' scores from a real store."""
    environment = published(valkey, scorer, rows) | given
    with ready_process(folder, str(scorer.bundle.path), **environment) as client:
        yield str(client.base_url)


def published(valkey: ValkeyProcess, scorer: Scorer, rows: Mapping[str, Any]) -> dict[str, str]:
    """Publishes the rows' scores, and says how a service is set up that serves them; generous in time."""
    namespace = f"t{uuid4().hex[:16]}"
    with open_store(settings_for(valkey.url, namespace), scorer.bundle.name) as store:
        publish(store, scorer, rows, data_as_of=1_700_000_000)
    return {
        "FORESCORE_REDIS__URL": valkey.url,
        "FORESCORE_REDIS__NAMESPACE": namespace,
        "FORESCORE_REDIS__READ_TIMEOUT_MS": "5000",
        "FORESCORE_SERVICE__DEADLINE_MS": "20000",
        "FORESCORE_SERVICE__POINTER_POLL_SECONDS": "0.05",
        "FORESCORE_SERVICE__RETRY_AFTER_SECONDS": "1",
        "FORESCORE_FEATURES__TIMEOUT_MS": "5000",
        "FORESCORE_FEATURES__UNKNOWN_SECONDS": "0",
        "FORESCORE_THREADS": "1",
    }
