"""What is answered where the bytes come in: over real connections, beside a service without the fast lane."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import orjson
import pytest
from support.clients import ROWS, published
from support.servers import ValkeyProcess, start_valkey, wait_until
from support.services import ready_process

from service.headers import entity_tag
from shared.scorer import open_scorer
from shared.testing.bundles import purchase_bundle

pytestmark = pytest.mark.timeout(600)
OF_A_REQUEST = re.compile(rb"^(date|x-request-id|server-timing): [^\r]*\r\n", re.MULTILINE)
CHANGING = re.compile(rb"(?<=^age: )[0-9]+|(?<=\"age_seconds\":)[0-9]+|(?<=:request:)[0-9a-f]+", re.MULTILINE)
OF_ITS_SECOND = re.compile(rb"(?<=^etag: )[^\r]+|(?<=\"source\":\"online\",\"scored_at\":\")[^\"]+", re.MULTILINE)
ROW = b'{"visits": 2, "returns": 1, "basket": 0}'
Address = tuple[str, int]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess) -> Iterator[tuple[Address, Address]]:
    """One with the fast lane and one without, on one snapshot of the entities 0 and 1; features are known of 2 too."""
    folder = tmp_path_factory.mktemp("protocol")
    scorer = open_scorer(purchase_bundle(folder / "bundle"), device="cpu")
    environment = published(valkey, scorer, {entity: ROWS[entity] for entity in ("0", "1")})
    environment["FORESCORE_SERVICE__WRITE_BACK"] = "false"  # else the one would answer what the other has scored
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                ready_process(folder / fast, str(scorer.bundle.path), **environment, FORESCORE_SERVICE__FAST_LANE=fast)
            )
            for fast in ("true", "false")
        ]
        assert clients[0].put("/features/2", json={"features": ROWS["2"]}).status_code == 204
        yield _address(clients[0]), _address(clients[1])


def _exchange(at: Address, sent: bytes, answers: int) -> bytes:
    """All that comes back for it, until so many answers are there or the connection ends."""
    with socket.create_connection(at, timeout=30) as connection:
        connection.sendall(sent)
        return _received(connection, answers)


def _received(connection: socket.socket, answers: int = 1) -> bytes:
    received = b""
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
    return _constant(_exchange(at, sent, answers))


def _constant(received: bytes) -> bytes:
    """What of it is the same each time."""
    for tag, body in re.findall(rb'etag: ("[^"]*")\r\n(?:[^\r]+\r\n)*\r\n({.*?"parity":"[a-z]+"})', received):
        assert entity_tag(orjson.loads(body)).encode() == tag
    told = CHANGING.sub(b"N", OF_A_REQUEST.sub(b"", received))
    return OF_ITS_SECOND.sub(b"N", told) if b'"source":"online"' in told or b"fwd=miss" in told else told


def _get(path: str, *headers: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/{version}", "host: x", *headers, "", ""]).encode()


def _post(body: bytes, *headers: str, path: str = "/score") -> bytes:
    head = "\r\n".join([f"POST {path} HTTP/1.1", "host: x", *headers, f"content-length: {len(body)}", "", ""])
    return head.encode() + body


def _list(*items: bytes) -> bytes:
    return b'{"items": [%b]}' % b", ".join(items)


GIVEN = _list(b'{"features": %b}' % ROW)
LISTS = [
    GIVEN,
    _list(b'{"entity_id": "x\\"\\u00e9", "features": %b}' % ROW),
    _list(b'{"entity_id": 7, "features": %b}' % ROW),
    *(
        _list(b'{"features": %b}' % row)
        for row in (b"{}", b'{"visits": "x"}', b'{"other": 1}', b"1", b'{"visits": 1e400}')
    ),
    *(_list(b'{"entity_id": %b, "features": %b}' % (entity, ROW)) for entity in (b"null", b'""', b"1.5")),
    *(_list(item) for item in (b'{"entity_id": "0"}', b'{"entity_id": "2"}', b'{"entity_id": "nobody"}', b"{}", b"1")),
    _list(*[b'{"features": %b}' % ROW] * 2),
    *(b"", b"[", b"{}", b"\xff", b'{"items": []}', b'{"items": {}}', b'{"items": [NaN]}', GIVEN[:-1] + b', "x": 1}'),
    GIVEN + b" " * 70_000,
    GIVEN + b" " * 1_100_000,
]
CHUNKED = b"POST /score HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        *((_post(body), 1) for body in LISTS),
        (_post(GIVEN, "connection: close"), 1),
        (_post(GIVEN, "expect: 100-continue"), 2),
        (_post(GIVEN, "cache-control: only-if-cached"), 1),
        (_post(GIVEN, "content-type: text/plain"), 1),
        (_post(GIVEN, path="/score?x=1"), 1),
        (_post(GIVEN, path="/score/"), 1),
        (CHUNKED % (len(GIVEN), GIVEN), 1),
        (_post(GIVEN) * 20, 20),
        (_post(GIVEN) + _get("/score/0") + _get("/score/2") + _get("/livez") + _post(b"["), 5),
        (_get("/score/2"), 1),
        (_get("/score/2", "connection: close"), 1),
        (_get("/score/2", version="1.0"), 1),
        (_get("/score/2", "if-none-match: *"), 1),
        (_get("/score/2", 'if-none-match: "x"'), 1),
        (_get("/score/2", "cache-control: only-if-cached"), 1),
        (_get("/score/2", "cache-control: max-age=1"), 1),
        (_get("/score/%32"), 1),
        (_get("/score/2") * 5 + _get("/score/nobody") * 5, 10),
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


@pytest.mark.parametrize(
    "sent",
    [
        [_get(f"/score/{entity}") for entity in ("0", "1", "2", "nobody", "0", "x" * 256, "x" * 257, "1")],
        [
            _get(f"/score/{entity}")
            for entity in ("0", "1?snapshot=none", "1?", "%31", "1#x", "0/", "../livez", "", "1")
        ],
        [_get(f"/score/{entity}") for entity in ('"', "\\", "{}", "a b", "~!$&'()*+,;=:@-._", "\x7f", "|^`", "1")],
        [
            _get("/score/0"),
            _post(GIVEN),
            _get("/score/1"),
            _get("/livez"),
            _get("/score/1"),
            _post(b"["),
            _get("/score/0"),
        ],
        [
            _get("/score/0"),
            _get("/score/1", "if-none-match: *"),
            _get("/score/0", "if-none-match: *"),
            _get("/score/0"),
        ],
        [_get("/score/0", "cache-control: no-cache"), _get("/score/1", "cache-control: no-cache"), _get("/score/2")],
        [_get("/score/0"), _get("/score/1", version="1.0")],
        [_get("/score/0"), _get("/score/1"), _get("/score/1").replace(b"HTTP/1.1", b"HTTP/1.0")],
        [_get("/score/0", "connection: keep-alive"), _get("/score/1", "connection: keep-alive")],
        [_get("/score/0", "connection: close"), _get("/score/1", "connection: close")],
        [_get("/score/0"), _get("/score/1").replace(b"GET", b"DELETE"), _get("/score/1").replace(b"GET", b"PUT")],
        [_get("/score/0"), _get("/score/1").replace(b"host", b"Host"), _get("/score/1") + b"\r\n", _get("/score/0")],
        [_get("/score/0", "content-length: 0"), _get("/score/1", "content-length: 0"), _get("/score/0")],
        [_get("/score/0"), b"\r\n" + _get("/score/1"), _get("/score/0"), b"NONSENSE\r\n\r\n"],
        [_get("/score/0"), _post(GIVEN[:-1]).replace(GIVEN[:-1], _get("/score/1")[: len(GIVEN) - 1]), _get("/score/0")],
        [_post(GIVEN), *map(_post, LISTS[:-2]), _post(GIVEN)],
        *([_post(GIVEN), _post(body), _post(GIVEN)] for body in LISTS[-2:]),
        [_post(GIVEN), _get("/score/0"), _post(b"["), _get("/score/2"), _get("/livez"), _post(LISTS[1])],
        [_post(GIVEN), _post(LISTS[1], "connection: close"), _post(GIVEN)],
        [_post(GIVEN, header) for header in ("cache-control: only-if-cached", "cache-control: only-if-cached", "a: b")],
        [_post(GIVEN), _post(GIVEN, path="/score?x=1"), _post(GIVEN, path="/score/"), _post(LISTS[1])],
        [_post(GIVEN), _post(GIVEN).replace(b"content-length: ", b"content-length: 00"), _post(LISTS[1])],
        [_post(GIVEN), _post(GIVEN).replace(b"content-length: ", b"content-length: +"), _post(LISTS[1])],
        [_post(GIVEN), _post(GIVEN).replace(b"1.1", b"1.0"), _post(LISTS[1])],
        [_post(GIVEN), CHUNKED % (len(GIVEN), GIVEN), _post(LISTS[1]), CHUNKED % (len(LISTS[1]), LISTS[1])],
    ],
)
def test_both_converse_in_the_same_bytes(services: tuple[Address, Address], sent: list[bytes]) -> None:
    """One request after the other on one connection, whatever was asked on it before: the same answers."""
    told = []
    for at in services:
        with socket.create_connection(at, timeout=30) as connection:
            told.append(b"".join(_conversed(connection, sent)))
    assert told[0] == told[1]


def _conversed(connection: socket.socket, sent: list[bytes]) -> Iterator[bytes]:
    for one in sent:
        with suppress(ConnectionError):  # it was ended, as the last answer told
            connection.sendall(one)
            yield _constant(_received(connection))


def test_a_known_head_may_be_sent_ahead(services: tuple[Address, Address]) -> None:
    """Questions that come before the last is answered, at once and in halves, are answered in their order."""
    fast, _ = services
    with socket.create_connection(fast, timeout=30) as connection:
        connection.sendall(_get("/score/0"))
        _received(connection)
        for number in (1, 2, 0, 1):
            connection.sendall(_get(f"/score/{number}"))
        connection.sendall(_get("/score/0") + _get("/score/1")[:20])
        connection.sendall(_get("/score/1")[20:] + _get("/score/1"))
        received = _received(connection, 7)
    assert re.findall(rb'"entity_id":"([0-9])"', received) == [b"1", b"2", b"0", b"1", b"0", b"1", b"1"]


def test_a_known_list_may_be_sent_ahead(services: tuple[Address, Address]) -> None:
    """The same for lists, each of which is answered for its own row."""
    fast, _ = services
    lists = [_post(_list(b'{"entity_id": "%d", "features": %b}' % (number, ROW))) for number in (7, 88, 999, 7, 88)]
    with socket.create_connection(fast, timeout=30) as connection:
        connection.sendall(lists[0])
        _received(connection)
        for one in lists:
            connection.sendall(one)
        connection.sendall(lists[0] + lists[1][:90])
        connection.sendall(lists[1][90:-3])
        connection.sendall(lists[1][-3:] + lists[2])
        received = _received(connection, 8)
    assert re.findall(rb'"entity_id":"([0-9]+)"', received) == [b"7", b"88", b"999", b"7", b"88", b"7", b"88", b"999"]


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


def test_each_connection_gets_the_score_of_its_own_row(services: tuple[Address, Address]) -> None:
    """Many rows and entities of one moment, scored together: the name and the score of each are its own."""
    fast, slow = services
    bodies = [
        _list(b'{"entity_id": %d, "features": {"visits": %f, "returns": 1, "basket": 0}}' % (n, n / 20))
        for n in range(80)
    ]
    alone = [_of_one(_exchange(slow, _post(body), 1)) for body in bodies]
    missed = _of_one(_exchange(slow, _get("/score/2"), 1))
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(fast, timeout=30)) for _ in range(120)]
        for place, connection in enumerate(connections):
            connection.sendall(_post(bodies[place]) if place < len(bodies) else _get("/score/2"))
        told = [_of_one(_received(connection)) for connection in connections]
    assert told == [*alone, *[missed] * 40]
    assert len({score for _, score in alone}) == len(alone)


def _of_one(received: bytes) -> tuple[str, float]:
    body = orjson.loads(received.partition(b"\r\n\r\n")[2])
    found = body["results"][0] if "results" in body else body
    return found["entity_id"], found["scores"]["buys"]


def test_what_is_scored_together_has_its_lines_and_counts(tmp_path: Path, valkey: ValkeyProcess) -> None:
    """A line and a count for each request and each of its stages, whoever shares them; the score is kept once."""
    scorer = open_scorer(purchase_bundle(tmp_path / "bundle"), device="cpu")
    environment = published(valkey, scorer, {"0": ROWS["0"]})
    with ready_process(tmp_path, str(scorer.bundle.path), **environment) as client:
        address = _address(client)
        assert client.put("/features/2", json={"features": ROWS["2"]}).status_code == 204
        first = _exchange(address, _get("/score/2"), 1)
        wait_until(
            lambda: b"forescore; hit" in _exchange(address, _get("/score/2", "cache-control: only-if-cached"), 1)
        )
        _exchange(address, _post(GIVEN) * 3, 3)
        told = client.get("/metrics").text
    logged = (tmp_path / "serve.err").read_text(encoding="utf-8").splitlines()
    lines = [orjson.loads(line) for line in logged if '"event":"request"' in line]
    assert b"cache-status: forescore; fwd=miss; stored\r\n" in first
    assert 'forescore_requests_total{route="/score",status="200"} 3.0' in told
    assert 'forescore_lookups_total{outcome="absent"} 1.0' in told
    assert 'forescore_stage_duration_seconds_count{stage="forward"} 4.0' in told
    posts = [line for line in lines if line["route"] == "/score"]
    assert [(line["method"], line["status"], line["items"]) for line in posts] == [("POST", 200, 1)] * 3
    (online,) = [line for line in lines if line.get("source") == "online"]
    assert (online["entity_id"], online["status"], online["snapshot"]) == ("2", 200, None)


def test_who_leaves_harms_nobody(tmp_path: Path) -> None:
    """Callers who are gone when the store answers at last: those who stay get their own answers, from the cache."""
    scorer = open_scorer(purchase_bundle(tmp_path / "bundle"), device="cpu")
    with start_valkey(tmp_path) as store:
        patient = {"FORESCORE_REDIS__READ_TIMEOUT_MS": "10000", "FORESCORE_SERVICE__DEADLINE_MS": "30000"}
        environment = published(store, scorer, {entity: ROWS[entity] for entity in ("0", "1")}) | patient
        with ready_process(tmp_path, str(scorer.bundle.path), **environment) as client:
            address = _address(client)
            with ExitStack() as stack:
                known = [_known_there(stack.enter_context(socket.create_connection(address))) for _ in range(40)]
                store.pause()
                for _ in range(100):
                    with socket.create_connection(address, timeout=30) as leaving:
                        leaving.sendall(_get("/score/0"))
                fresh = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(20)]
                staying = [*fresh, *known[20:]]
                for connection in [*known, *fresh]:
                    connection.sendall(_get("/score/1"))
                for connection in known[:20]:
                    connection.close()
                store.resume()
                bodies = [orjson.loads(connection.recv(65_536).partition(b"\r\n\r\n")[2]) for connection in staying]
    assert [(body["entity_id"], body["source"]) for body in bodies] == [("1", "cache")] * 40


def _known_there(connection: socket.socket) -> socket.socket:
    """On which one question was answered already."""
    connection.settimeout(30)
    connection.sendall(_get("/score/0"))
    _received(connection)
    return connection


def _address(client: httpx2.Client) -> Address:
    at = urlsplit(str(client.base_url))
    return at.hostname or "", at.port or 0
