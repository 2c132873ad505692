"""Rubbish at the port of a real process: it is refused or ignored, and the next caller is served."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients import ROWS, published
from support.fuzzing import budget
from support.servers import ValkeyProcess
from support.services import ready_process

from shared.scorer import open_scorer
from shared.testing.bundles import purchase_bundle

Leave = Callable[[socket.socket], None]
PATIENCE = 0.1
"""How long something is waited for that may never come."""
TLS_HELLO = bytes.fromhex("160301002f0100002b0303") + bytes(32) + bytes.fromhex("0000021301010000")
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
PLAIN = b"GET /score/0 HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /score HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
RUBBISH = {
    "nothing": b"",
    "nulls": bytes(4096),
    "every byte": bytes(range(256)) * 16,
    "tls": TLS_HELLO,
    "http2": HTTP2,
    "http2 upgrade": b"GET /score/0 HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\r\n",
    "websocket": b"GET /score/0 HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.9\r\n",
    "no version": b"GET /score/0\r\n\r\n",
    "version 9": b"GET /score/0 HTTP/9.9\r\n\r\n",
    "bare newlines": b"GET /score/0 HTTP/1.1\nhost: x\n\n",
    "no host": b"GET /score/0 HTTP/1.1\r\n\r\n",
    "blank in a name": b"GET /score/0 HTTP/1.1\r\nho st: x\r\n\r\n",
    "null in a header": b"GET /score/0 HTTP/1.1\r\nhost: x\r\nx: a\0b\r\n\r\n",
    "null in the path": b"GET /score/\0 HTTP/1.1\r\nhost: x\r\n\r\n",
    "raw bytes in the path": b"GET /score/\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
    "raw bytes in a header": b"GET /score/0 HTTP/1.1\r\nhost: \xff\r\n"
    b"cache-control: \xff\xfe\r\nif-none-match: \xff\r\n\r\n",
    "folded header": b"GET /score/0 HTTP/1.1\r\nhost: x\r\nx: a\r\n b\r\n\r\n",
    "long path": b"GET /score/" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    "huge head": b"GET /score/0 HTTP/1.1\r\n" + b"x: " + b"a" * 2_000_000 + b"\r\n\r\n",
    "many headers": b"GET /score/0 HTTP/1.1\r\n" + b"x: y\r\n" * 100_000 + b"\r\n",
    "absolute address": b"GET http://elsewhere/score/0 HTTP/1.1\r\nhost: x\r\n\r\n",
    "no address": b"GET  HTTP/1.1\r\nhost: x\r\n\r\n",
    "star": b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    "connect": b"CONNECT a:1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "odd method": b"BREW /score/0 HTTP/1.1\r\nhost: x\r\n\r\n",
    "length below": POST + b'content-length: 3\r\n\r\n{"items": []}',
    "length above": POST + b'content-length: 300\r\n\r\n{"items": []}',
    "length negative": POST + b"content-length: -1\r\n\r\n{}",
    "length huge": POST + b"content-length: 99999999999999999999999\r\n\r\n{}",
    "length a word": POST + b"content-length: two\r\n\r\n{}",
    "two lengths": POST + b"content-length: 2\r\ncontent-length: 30\r\n\r\n{}",
    "length and chunks": POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk of no number": POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "chunk of all sizes": POST + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "chunk cut off": POST + b"transfer-encoding: chunked\r\n\r\n5\r\n{}",
    "unknown coding": POST + b"transfer-encoding: gzip\r\n\r\n{}",
    "expects": POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n",
    "expects more": POST + b"expect: the-unexpected\r\ncontent-length: 2\r\n\r\n{}",
    "deep": POST + b"content-length: 200000\r\n\r\n" + b"[" * 200_000,
    "deep in chunks": POST + b"transfer-encoding: chunked\r\n\r\n" + b"1000\r\n" + b"[" * 4096 + b"\r\n" + b"0\r\n\r\n",
    "a hit and a half": PLAIN + PLAIN[:20],
    "a hit and rubbish": PLAIN + b"\0\xff\r\n\r\n",
    "hits after rubbish": b"\r\n\r\nrubbish\r\n\r\n" + PLAIN * 3,
    "empty lines, then a hit": b"\r\n" * 1000 + PLAIN,
    "a post and a half": (POST + b"content-length: 2\r\n\r\n{}") + POST,
    "many hits, not read": PLAIN * 20_000,
}
HALVES = [
    PLAIN,
    PLAIN * 2,
    POST + b"content-length: 2\r\n\r\n{}",
    *(RUBBISH[name] for name in ("http2", "two lengths")),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess) -> Iterator[httpx2.Client]:
    folder = tmp_path_factory.mktemp("sockets")
    scorer = open_scorer(purchase_bundle(folder / "bundle"), device="cpu")
    with ready_process(folder, str(scorer.bundle.path), **published(valkey, scorer, ROWS)) as client:
        yield client


@pytest.mark.parametrize("name", list(RUBBISH))
def test_still_serving_after(service: httpx2.Client, name: str) -> None:
    """Whatever was sent, and however its sender left: no answer of 500, and the next caller gets his score."""
    for leave in (_in_order, _rudely):
        assert b" 500 " not in _thrown(service, RUBBISH[name], leave).partition(b"\r\n")[0]
    _assert_serving(service)


@given(data=st.data())
@budget(40)
def test_still_serving_after_what_nobody_thought_of(service: httpx2.Client, data: st.DataObject) -> None:
    """Requests with bytes changed, cut, doubled and put in, and plain noise."""
    whole = bytearray(data.draw(st.sampled_from([*HALVES, b""])))
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(whole)))
        whole[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=8))
    leave = data.draw(st.sampled_from([_in_order, _rudely]))
    assert b" 500 " not in _thrown(service, bytes(whole), leave, patience=0.02).partition(b"\r\n")[0]
    _assert_serving(service)


def test_still_serving_while_others_say_nothing(service: httpx2.Client) -> None:
    """Three hundred connections that send half a request and then no more keep nobody waiting."""
    with ExitStack() as stack:
        for place in range(300):
            idle = stack.enter_context(socket.create_connection(_address(service), timeout=30))
            idle.sendall(PLAIN[: place % len(PLAIN)])
        _assert_serving(service)
    _assert_serving(service)


def test_a_request_may_come_byte_by_byte(service: httpx2.Client) -> None:
    """However slowly it comes, a whole request is a request."""
    with socket.create_connection(_address(service), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(PLAIN)):
            connection.sendall(PLAIN[place : place + 1])
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def _thrown(service: httpx2.Client, sent: bytes, leave: Leave, patience: float = PATIENCE) -> bytes:
    """What came back within a moment. Sending is a thread's: who does not read may be unable to send all."""
    with socket.create_connection(_address(service), timeout=30) as connection:
        sender = threading.Thread(target=_send, args=(connection, sent))
        sender.start()
        connection.settimeout(patience)
        received = b""
        with suppress(OSError):
            received = connection.recv(65_536)
        leave(connection)
        sender.join(timeout=30)
        assert not sender.is_alive()
    return received


def _send(connection: socket.socket, sent: bytes) -> None:
    with suppress(OSError):  # it hangs up, as it may
        connection.sendall(sent)


def _in_order(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _rudely(connection: socket.socket) -> None:
    """With a reset, and what it was to get still on its way."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)
    connection.close()


def _assert_serving(service: httpx2.Client) -> None:
    """A new connection gets a hit, and one that was open before gets a score from the model."""
    body = httpx2.get(service.base_url.join("/score/0"), timeout=30).json()
    assert (body["entity_id"], body["source"]) == ("0", "cache"), body
    answer = service.post("/score", json={"items": [{"features": ROWS["1"]}]})
    assert answer.json()["results"][0]["scores"], answer.text


def _address(service: httpx2.Client) -> tuple[str, int]:
    at = urlsplit(str(service.base_url))
    return at.hostname or "", at.port or 0
