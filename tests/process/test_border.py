"""Callers who trickle, who send too much, and who do not read: over raw connections to a real process."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from hashlib import sha256
from urllib.parse import urlsplit

import httpx2
import orjson
import pytest
from support.clients import ROWS, published
from support.servers import ValkeyProcess, wait_until
from support.services import ready_process

from shared.scorer import open_scorer
from shared.testing.bundles import purchase_bundle

pytestmark = pytest.mark.timeout(600)
Address = tuple[str, int]
KEY = "fsk_reader"
MOST_CONNECTIONS = 20
SECONDS = 1.0


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess) -> Iterator[httpx2.Client]:
    """A service with keys and narrow limits, ready and in a process of its own."""
    folder = tmp_path_factory.mktemp("border")
    scorer = open_scorer(purchase_bundle(folder / "bundle"), device="cpu")
    environment = published(valkey, scorer, {entity: ROWS[entity] for entity in ("0", "1")}) | {
        "FORESCORE_KEYS__LINES": f"app read,write,admin {sha256(KEY.encode()).hexdigest()}",
        "FORESCORE_LIMITS__ROWS": "100",
        "FORESCORE_LIMITS__RATE": "1000000/second",
        "FORESCORE_SERVICE__RECEIVE_SECONDS": str(SECONDS),
        "FORESCORE_SERVICE__MAX_CONNECTIONS": str(MOST_CONNECTIONS),
        "FORESCORE_SERVICE__MAX_BODY_BYTES": "50000",
    }
    with ready_process(folder, str(scorer.bundle.path), **environment) as ready:
        yield ready


@pytest.fixture
def at(client: httpx2.Client) -> Address:
    """Where it listens. Each test leaves it answering."""
    parts = urlsplit(str(client.base_url))
    return str(parts.hostname), int(parts.port or 0)


def exchange(at: Address, *sent: bytes) -> bytes:
    """All that comes back until the other side ends the connection."""
    received = b""
    with socket.create_connection(at, timeout=30) as connection, suppress(ConnectionError):
        for piece in sent:
            connection.sendall(piece)
        while more := connection.recv(65_536):
            received += more
    return received


def problem(received: bytes) -> tuple[int, str]:
    head, _, body = received.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    assert re.search(rb"x-request-id: [0-9a-f]{16}", head)
    return status, str(orjson.loads(body)["type"]).rpartition(":")[2]


def request(line: str, *headers: str, key: str = KEY) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "host: x", f"x-api-key: {key}", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET /score/0 HT", (408, "request-too-slow")),
        (b"GET /score/0 HTTP/1.1\r\nhost: x\r\nx-slow: ", (408, "request-too-slow")),
        (request("POST /score", "content-length: 30") + b'{"items"', (408, "request-too-slow")),
        (request("POST /score", "transfer-encoding: chunked") + b'5\r\n{"it', (408, "request-too-slow")),
        (request("PUT /features/x", "content-length: 30") + b"{", (408, "request-too-slow")),
        (request("GET /score/0", "x-large: " + "a" * 20_000), (431, "head-too-large")),
        (request("GET /score/" + "a" * 20_000), (431, "head-too-large")),
        (request("GET /score/0", *(f"x{place}: y" for place in range(3000))), (431, "head-too-large")),
        (b"GET /score/0 HTTP/1.1\r\nx: " + b"a" * 300_000, (431, "head-too-large")),
        (b"NONSENSE\r\n\r\n", (400, "bad-request")),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400, "bad-request")),
        (request("GET /score/0", "content-length: x"), (400, "bad-request")),
        (request("POST /score", "content-length: 3", "transfer-encoding: chunked") + b"abc", (400, "bad-request")),
    ],
)
def test_who_sends_too_little_or_too_much_is_told(
    client: httpx2.Client, at: Address, sent: bytes, told: tuple[int, str]
) -> None:
    """A problem and the end of the connection, soon; and it still serves."""
    assert problem(exchange(at, sent)) == told
    assert client.get("/score/0", headers={"x-api-key": KEY}).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
def test_a_connection_that_brings_no_request_ends(client: httpx2.Client, at: Address, sent: bytes) -> None:
    """Nothing is said to one who has said nothing."""
    assert exchange(at, sent) == b""
    assert client.get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("GET /livez", "content-length: 10"), b"200"),
        (request("POST /score", "content-length: 100", key="fsk_wrong"), b"401"),
    ],
)
def test_a_body_that_nobody_waits_for_ends_too(client: httpx2.Client, at: Address, sent: bytes, status: bytes) -> None:
    """A request that was answered without its body keeps no connection open by sending a little of it."""
    with socket.create_connection(at, timeout=30) as connection:
        connection.sendall(sent)
        assert connection.recv(65_536).split()[1] == status
        connection.sendall(b"{")
        while connection.recv(65_536):  # the rest of the answer, and then the end
            pass
    assert client.get("/livez").status_code == 200


def test_a_body_is_bounded_however_it_is_sent(client: httpx2.Client) -> None:
    """By its declared and by its received length, in chunks, and compressed: 413 and 415, each a problem."""
    large = b'{"items": []}' + b" " * 60_000
    headers = {"x-api-key": KEY}
    answers = [
        client.post("/score", content=large, headers=headers),
        client.post("/score", content=iter([large[:30_000], large[30_000:]]), headers=headers),
        client.post("/score", content=b"\x1f\x8b", headers={**headers, "content-encoding": "gzip"}),
        client.put("/features/x", content=b"\x1f\x8b", headers={**headers, "content-encoding": "br"}),
    ]
    assert [answer.status_code for answer in answers] == [413, 413, 415, 415]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 40_000,
        b'{"items":' * 4000,
        b'{"items": [{"entity_id": ' + b"9" * 30_000 + b"}]}",
        b'{"items": [{"features": {"visits": 1e999999}}]}',
        b'{"items": [{"features": {"visits": ' + b"9" * 30_000 + b"}}]}",
    ],
)
def test_deep_and_giant_values_are_refused(client: httpx2.Client, body: bytes) -> None:
    """The body or its one item is refused; nothing grows with what is claimed."""
    answer = client.post("/score", content=body, headers={"x-api-key": KEY})
    assert answer.status_code == 400 or "error" in answer.json()["results"][0]


def test_a_trailer_without_an_end_is_cut(at: Address) -> None:
    """What follows the body counts as well."""
    head = request("POST /score", "transfer-encoding: chunked")
    received = exchange(at, head, b"2\r\n{}\r\n0\r\n", *[b"x-%d: y\r\n" % place + b"z" * 9000 for place in range(100)])
    assert not received.startswith(b"HTTP/1.1 200")


def test_who_does_not_read_is_left(client: httpx2.Client, at: Address) -> None:
    """Answers pile up for one who only asks: his connection ends, and the others are answered."""
    items = orjson.dumps({"items": [{"entity_id": "0"}] * 90})
    asked = request("POST /score", f"content-length: {len(items)}") + items
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(5)
        deaf.connect(at)

        def is_cut() -> bool:
            try:
                deaf.sendall(asked * 20)
            except TimeoutError:
                return False
            except ConnectionError:
                return True
            return False

        wait_until(is_cut, 60)
    assert client.get("/score/0", headers={"x-api-key": KEY}).status_code == 200


def test_idle_connections_make_room(client: httpx2.Client, at: Address) -> None:
    """Many that only lie there: a new caller is answered all the same."""
    with ExitStack() as stack:
        for _ in range(3 * MOST_CONNECTIONS):
            stack.enter_context(socket.create_connection(at, timeout=30))
        assert httpx2.get(client.base_url.join("/livez"), timeout=30).status_code == 200


def test_where_all_are_at_work_a_new_one_is_refused(at: Address) -> None:
    """503 with Retry-After at once, and no connection that works is taken away."""
    with ExitStack() as stack:
        working = [stack.enter_context(_at_work(at)) for _ in range(MOST_CONNECTIONS)]
        late = exchange(at, b"")
        assert problem(late) == (503, "overloaded")
        assert b"retry-after: " in late
        for connection in working:
            connection.sendall(b'{"items": []}')
        statuses = [connection.recv(65_536).split()[1] for connection in working]
    assert statuses == [b"200"] * MOST_CONNECTIONS


def _at_work(at: Address) -> socket.socket:
    """A connection whose request is taken and waits for its body. Each is, before the next comes: only what rests from
    the tests before makes room for it."""
    connection = socket.create_connection(at, timeout=30)
    connection.sendall(request("POST /score", "content-length: 13", "expect: 100-continue"))
    assert connection.recv(65_536).startswith(b"HTTP/1.1 100 ")
    return connection


def test_a_hit_is_let_in_where_the_bytes_come_in(client: httpx2.Client, at: Address) -> None:
    """Pipelined hits, with and without a key, in order: the key decides for each of them by itself."""
    asked = (
        request("GET /score/0")
        + request("GET /score/1", key="fsk_wrong")
        + request("GET /score/1", "connection: close")
    )
    statuses = re.findall(rb"HTTP/1.1 ([0-9]+)", exchange(at, asked))
    assert statuses == [b"200", b"401", b"200"]
    wait_until(lambda: 'forescore_key_rows_total{key="app"}' in client.get("/metrics", headers={"x-api-key": KEY}).text)


def test_a_caller_can_shorten_the_deadline(client: httpx2.Client) -> None:
    """A time that cannot be is refused; one that is long enough changes nothing; one that is too short is told."""
    headers = {"x-api-key": KEY}
    asked = {
        told: client.get("/score/nobody", headers={**headers, "x-request-timeout": told})
        for told in ("0", "-1", "soon", "nan", "5", "100000", "0.000000001")
    }
    assert [answer.status_code for answer in asked.values()] == [400, 400, 400, 400, 404, 404, 504]
    assert "X-Request-Timeout" in asked["0.000000001"].json()["detail"]
    assert client.get("/score/0", headers={**headers, "x-request-timeout": "15"}).status_code == 200
