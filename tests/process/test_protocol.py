"""Hits that are answered where the bytes come in: over real connections, beside a service without the fast lane."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import orjson
import pytest
from support.clients import ROWS, published
from support.servers import ValkeyProcess, start_valkey
from support.services import ready_process

from shared.scorer import open_scorer
from shared.testing.bundles import purchase_bundle

pytestmark = pytest.mark.timeout(600)
OF_A_REQUEST = re.compile(rb"^(date|x-request-id|server-timing): [^\r]*\r\n", re.MULTILINE)
CHANGING = re.compile(rb"(?<=^age: )[0-9]+|(?<=\"age_seconds\":)[0-9]+|(?<=:request:)[0-9a-f]+", re.MULTILINE)
Address = tuple[str, int]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess) -> Iterator[tuple[Address, Address]]:
    """One with the fast lane and one without, on one snapshot of the entities 0 and 1."""
    folder = tmp_path_factory.mktemp("protocol")
    scorer = open_scorer(purchase_bundle(folder / "bundle"), device="cpu")
    environment = published(valkey, scorer, {entity: ROWS[entity] for entity in ("0", "1")})
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                ready_process(folder / fast, str(scorer.bundle.path), **environment, FORESCORE_SERVICE__FAST_LANE=fast)
            )
            for fast in ("true", "false")
        ]
        yield _address(clients[0]), _address(clients[1])


def _exchange(at: Address, sent: bytes, answers: int) -> bytes:
    """All that comes back for it, until so many answers are there or the connection ends."""
    received = b""
    with socket.create_connection(at, timeout=30) as connection:
        connection.sendall(sent)
        while _answers(received) < answers and (more := connection.recv(65_536)):
            received += more
    return received


def _answers(received: bytes) -> int:
    """How many whole answers there are."""
    count = 0
    while True:
        head, end, rest = received.partition(b"\r\n\r\n")
        if not end:
            return count
        length = re.search(rb"content-length: ([0-9]+)", head)
        size = int(length[1]) if length is not None else 0
        if len(rest) < size:
            return count
        received, count = rest[size:], count + 1


def _told(at: Address, sent: bytes, answers: int = 1) -> bytes:
    return CHANGING.sub(b"N", OF_A_REQUEST.sub(b"", _exchange(at, sent, answers)))


def _get(path: str, *headers: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/{version}", "host: x", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (_get("/score/0"), 1),
        (_get("/score/0", "connection: close"), 1),
        (_get("/score/0", version="1.0"), 1),
        (_get("/score/0", "connection: keep-alive", version="1.0"), 1),
        (_get("/score/0", "if-none-match: *"), 1),
        (_get("/score/0", "if-none-match: *", "connection: close"), 1),
        (_get("/score/0", "cache-control: only-if-cached"), 1),
        (_get("/score/0", "cache-control: no-cache"), 1),
        (_get("/score/0", "content-length: 3") + b"abc", 1),
        (_get("/score/%30"), 1),
        (_get("/score/nobody"), 1),
        (_get("/score/0?snapshot=none"), 1),
        (_get("/score/0") + _get("/score/nobody") + _get("/score/1") + _get("/livez") + _get("/score/0"), 5),
        (_get("/score/1") * 20, 20),
        (_get("/score/0").replace(b"GET", b"DELETE"), 1),
    ],
)
def test_both_send_the_same_bytes(services: tuple[Address, Address], sent: bytes, answers: int) -> None:
    """Whatever is sent, in whatever order and on whatever connection: but for what is of one request, the same."""
    fast, slow = services
    told = _told(fast, sent, answers)
    assert told.startswith(b"HTTP/1.1 ")
    assert told == _told(slow, sent, answers)


def test_each_connection_gets_its_own_answers(services: tuple[Address, Address]) -> None:
    """Many at once, each asking for the one and the other: no answer is ever that of another entity."""
    fast, _ = services
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(fast, timeout=30)) for _ in range(50)]
        for turn in range(20):
            for place, connection in enumerate(connections):
                connection.sendall(_get(f"/score/{(place + turn) % 2}"))
            for place, connection in enumerate(connections):
                body = connection.recv(65_536).partition(b"\r\n\r\n")[2]
                assert orjson.loads(body)["entity_id"] == str((place + turn) % 2)


def test_who_leaves_harms_nobody(tmp_path: Path) -> None:
    """Callers who are gone when the store answers at last: those who stay get their own answers, from the cache."""
    scorer = open_scorer(purchase_bundle(tmp_path / "bundle"), device="cpu")
    with start_valkey(tmp_path) as store:
        patient = {"FORESCORE_REDIS__READ_TIMEOUT_MS": "10000", "FORESCORE_SERVICE__DEADLINE_MS": "30000"}
        environment = published(store, scorer, {entity: ROWS[entity] for entity in ("0", "1")}) | patient
        with ready_process(tmp_path, str(scorer.bundle.path), **environment) as client:
            address = _address(client)
            store.pause()
            for _ in range(100):
                with socket.create_connection(address, timeout=30) as leaving:
                    leaving.sendall(_get("/score/0"))
            with ExitStack() as stack:
                staying = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(20)]
                for connection in staying:
                    connection.sendall(_get("/score/1"))
                store.resume()
                bodies = [orjson.loads(connection.recv(65_536).partition(b"\r\n\r\n")[2]) for connection in staying]
    assert [(body["entity_id"], body["source"]) for body in bodies] == [("1", "cache")] * 20


def _address(client: httpx2.Client) -> Address:
    at = urlsplit(str(client.base_url))
    return at.hostname or "", at.port or 0
