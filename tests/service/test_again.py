"""A head that is not parsed again is what the parser would have made of it."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.again import Again, LateCycle, PostedAgain
from service.protocol import HitProtocol

HEAD = b"GET /score/a HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /score HTTP/1.1\r\nhost: x\r\nContent-Length: 4\r\naccept: y\r\n\r\n[{}]"
IDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
NAMES = st.text("abcXYZ-09_", min_size=1, max_size=12)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=20)
STATE = {"service": object()}


class Parsing(HttpToolsProtocol):
    """Keeps the scopes that the parser makes, and answers nothing."""

    def __init__(self) -> None:
        super().__init__(_config(), ServerState(), STATE, cast("Any", Loop()))
        self.connection_made(cast("Any", Transport()))
        self.scopes: list[dict[str, Any]] = []

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.scopes.append(cast("dict[str, Any]", cycle.scope))
        cycle.response_complete = True


@dataclass
class Timer:
    at: float
    call: Any
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Loop:
    """A loop of timers alone."""

    now: float = 0.0
    timers: list[Timer] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Any) -> Timer:
        self.timers.append(Timer(self.now + seconds, call))
        return self.timers[-1]

    def go_to(self, now: float) -> None:
        """Time passes, and what is due by then is called when it is due."""
        while due := [timer for timer in self.timers if timer.at <= now and not timer.cancelled]:
            self.timers.remove(due[0])
            self.now = due[0].at
            due[0].call()
        self.now = now


@dataclass
class Transport:
    written: bytes = b""
    closed: bool = False

    def get_extra_info(self, name: str) -> object:
        return None

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def _config() -> uvicorn.Config:
    async def app(_scope: object, _receive: object, _send: object) -> None: ...

    return uvicorn.Config(app, http=HttpToolsProtocol, ws="none", lifespan="off", log_config=None)


def _parsed(data: bytes) -> list[dict[str, Any]]:
    protocol = Parsing()
    protocol.data_received(data)
    return protocol.scopes


def _head(entity: str, headers: list[tuple[str, str]]) -> bytes:
    lines = [f"GET /score/{entity} HTTP/1.1", *(f"{name}: {value.strip()}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


@given(st.lists(st.tuples(NAMES, VALUES), max_size=4), IDS, IDS)
def test_what_is_not_parsed_again_is_what_the_parser_would_make(
    headers: list[tuple[str, str]], first: str, second: str
) -> None:
    """Whatever the headers and whatever the ids: all of the scope is the same, or the parser is asked."""
    one, other = _head(first, headers), _head(second, headers)
    parsed = _parsed(one)
    again = Again.of(one, parsed[0]) if len(parsed) == 1 else None
    entity = None if again is None else again.entity_in(other)
    if again is not None and entity is not None:
        assert [again.scope(entity, STATE)] == _parsed(other)


@pytest.mark.parametrize("entity", [b"a", b"0", b"x" * 256, b"~!$&'()*+,;=:@-._"])
def test_a_plain_id_is_found_in_a_known_head(entity: bytes) -> None:
    """What means itself in a path is taken as it is."""
    again = Again.of(HEAD, *_parsed(HEAD))
    assert again is not None
    assert again.entity_in(HEAD.replace(b"/a ", b"/%b " % entity)) == entity


@pytest.mark.parametrize(
    "data",
    [
        HEAD.replace(b"/a", b"/"),
        HEAD.replace(b"/a", b"/" + b"x" * 257),
        *(HEAD.replace(b"/a", b"/a" + sign) for sign in (b"?", b"#", b"%20", b"/", b" ", b'"', b"\\", b"\0", b"\xff")),
        HEAD.replace(b"GET", b"PUT"),
        HEAD.replace(b"1.1", b"1.0"),
        HEAD.replace(b"host", b"Host"),
        HEAD + HEAD,
        HEAD + b"\r\n",
        HEAD[:-1],
        HEAD[1:],
        b"\r\n" + HEAD,
        b"",
    ],
)
def test_all_else_is_left_to_the_parser(data: bytes) -> None:
    """Another method, version, header or path, more than one request, or less."""
    again = Again.of(HEAD, *_parsed(HEAD))
    assert again is not None
    assert again.entity_in(data) is None


@pytest.mark.parametrize(
    "header", [b"connection: close", b"content-length: 0", b"expect: x", b"upgrade: x", b"transfer-encoding: chunked"]
)
def test_a_head_that_says_what_follows_it_is_no_sample(header: bytes) -> None:
    """The parser must see each one of them."""
    head = HEAD.replace(b"host: x", b"host: x\r\n" + header)
    assert Again.of(head, {"http_version": "1.1", "headers": [tuple(header.split(b": "))]}) is None


@pytest.mark.parametrize(
    "data", [HEAD + HEAD, HEAD.replace(b"score", b"livez"), HEAD + b"x", HEAD[:-2], HEAD.replace(b"GET", b"HEAD")]
)
def test_only_one_whole_question_is_a_sample(data: bytes) -> None:
    """What has more in it, or less, teaches nothing."""
    assert Again.of(data, {"http_version": "1.1", "headers": []}) is None


def _posted(headers: list[tuple[str, str]], place: int, body: bytes, length: str | None = None) -> bytes:
    measured = ("Content-Length", str(len(body)) if length is None else length)
    lines = [f"{name}: {value.strip()}" for name, value in [*headers[:place], measured, *headers[place:]]]
    return "\r\n".join(["POST /score HTTP/1.1", *lines, "", ""]).encode("latin-1") + body


@given(
    st.lists(st.tuples(NAMES, VALUES), max_size=4), st.integers(0, 4), st.binary(max_size=120), st.binary(max_size=120)
)
def test_a_list_that_is_not_parsed_again_is_what_the_parser_would_make(
    headers: list[tuple[str, str]], place: int, first: bytes, second: bytes
) -> None:
    """Whatever the headers and the bodies: all of the scope and of the body is the same, or the parser is asked."""
    one, other = _posted(headers, place, first), _posted(headers, place, second)
    parsed = _parsed(one)
    again = PostedAgain.of(one, parsed[0]) if len(parsed) == 1 else None
    asked = None if again is None else again.asked_in(other)
    if again is not None and asked is not None:
        assert [again.scope(asked[0], STATE)] == _parsed(other)
        assert asked[1] == second


@given(st.binary(min_size=1, max_size=120), st.text("0123456789 +_", min_size=1, max_size=12))
def test_a_body_must_have_the_length_that_the_head_says(body: bytes, length: str) -> None:
    """Less or more is the parser's to judge, and so is a length that is no plain number."""
    again = PostedAgain.of(POST, *_parsed(POST))
    assert again is not None
    data = POST.replace(b"4", length.encode()).replace(b"[{}]", body)
    asked = again.asked_in(data)
    assert (asked is not None) == (length.isdigit() and len(length) <= 9 and int(length) == len(body))
    assert asked in {None, (length.encode(), body)}


@pytest.mark.parametrize(
    "data",
    [
        POST.replace(b"/score", b"/score?x=1"),
        POST.replace(b"/score", b"/scores"),
        POST.replace(b"1.1", b"1.0"),
        POST.replace(b"host", b"Host"),
        POST.replace(b"accept: y", b"accept: z"),
        POST.replace(b"accept: y\r\n", b""),
        POST.replace(b"accept: y", b"accept: y\r\nexpect: 100-continue"),
        POST.replace(b"4\r\n", b"4 \r\n"),
        POST.replace(b"4\r\n", b"\r\n"),
        POST + POST,
        POST + b"x",
        POST[:-1],
        POST[1:],
        b"\r\n" + POST,
        POST.replace(b"4", b"70000").replace(b"[{}]", b" " * 70_000),
        POST.replace(b"4", b"0").replace(b"[{}]", b""),
        b"",
    ],
)
def test_all_other_lists_are_left_to_the_parser(data: bytes) -> None:
    """Another target, version or header, more than one list, or less, and bodies that are not read at once."""
    again = PostedAgain.of(POST, *_parsed(POST))
    assert again is not None
    assert again.asked_in(data) is None


@pytest.mark.parametrize(
    "data",
    [
        POST + POST,
        POST + b"x",
        POST[:-1],
        POST.replace(b"\r\n\r\n", b"\n\n"),
        POST.replace(b"/score", b"/scores"),
        POST.replace(b"accept: y", b"connection: close"),
        POST.replace(b"accept: y", b"expect: 100-continue"),
        POST.replace(b"accept: y", b"content-length: 4"),
        POST.replace(b"Content-Length: 4", b"transfer-encoding: chunked"),
        POST.replace(b"accept: y", b"transfer-encoding: chunked"),
        POST.replace(b"accept: y", b"upgrade: x"),
        HEAD,
    ],
)
def test_only_one_whole_list_is_a_sample(data: bytes) -> None:
    """What has more in it, or less, or says something else of what follows, teaches nothing."""
    lines = data.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    assert PostedAgain.of(data, {"http_version": "1.1", "headers": headers}) is None


def test_one_timer_serves_all_answers_of_a_connection() -> None:
    """It is set for the first, finds out that there were more, and ends the connection when the time since the last is
    over."""
    loop, transport = Loop(), Transport()
    protocol = HitProtocol(_config(), ServerState(), STATE, cast("Any", loop))
    protocol.connection_made(cast("Any", transport))
    for now in (0.0, 2.0, 4.0):
        loop.go_to(now)
        _answer(protocol)
    assert len(loop.timers) == 1
    loop.go_to(8.9)
    assert not transport.closed
    loop.go_to(9.0)
    assert transport.closed


def test_a_connection_does_not_end_while_a_question_is_open() -> None:
    """However long its answer takes; the time begins with that."""
    loop, transport = Loop(), Transport()
    protocol = HitProtocol(_config(), ServerState(), STATE, cast("Any", loop))
    protocol.connection_made(cast("Any", transport))
    _answer(protocol)
    open_question = _asked(protocol)
    loop.go_to(60.0)
    assert not transport.closed
    protocol.send_answer(open_question, 200, b"", b"")
    loop.go_to(64.9)
    assert not transport.closed
    loop.go_to(65.0)
    assert transport.closed


def test_a_late_cycle_is_whole_once_it_is_filled() -> None:
    """An application that takes it finds the body, if there is one, and hears of a caller who has left."""
    protocol = Parsing()
    cycle = LateCycle({"type": "http"})
    cycle.disconnected = True
    cycle.fill(protocol)
    assert asyncio.run(cycle.receive()) == {"type": "http.disconnect"}
    present = LateCycle({"type": "http"})
    present.fill(protocol)
    assert asyncio.run(present.receive()) == {"type": "http.request", "body": b"", "more_body": False}
    posted = LateCycle({"type": "http"}, b"[]")
    posted.fill(protocol)
    assert asyncio.run(posted.receive()) == {"type": "http.request", "body": b"[]", "more_body": False}


def _asked(protocol: HitProtocol) -> LateCycle:
    cycle = protocol.cycle = LateCycle({"type": "http"})
    protocol.scope = cycle.scope
    return cycle


def _answer(protocol: HitProtocol) -> None:
    protocol.send_answer(_asked(protocol), 200, b"", b"")
