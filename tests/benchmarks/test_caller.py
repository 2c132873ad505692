import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.caller import Plan, call, request_of
from benchmarks.customers import ENTITY, random_rows, resampled

BOOK = [request_of(line) for line in ("GET /a", "GET /b", 'POST /c {"x":1}')]
Answering = Callable[[bytes], list[bytes]]


def response(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


def called(answering: Answering, **plan: Any) -> dict[str, Any]:
    """What the client finds at a server that answers a request with these pieces of bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            while await reader.readline() != b"\r\n":
                pass
            if head.startswith(b"POST"):
                await reader.readexactly(len(b'{"x":1}'))
            for piece in answering(head):
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def run() -> dict[str, Any]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await call(Plan(port=port, book="", connections=1, **plan), BOOK)

    return asyncio.run(run())


def test_each_request_of_the_plan_is_asked_once() -> None:
    """A plan of an amount goes through its lines once, in order, and keeps bodies as samples."""
    found = called(lambda head: [response("200 OK", head.split()[1])], first=1, amount=2)

    assert (found["answers"], found["errors"]) == (2, 0)
    assert found["samples"] == [(1, "/b"), (2, "/c")]
    assert found["p99_ms"] >= found["p50_ms"] > 0


def test_an_answer_may_come_in_pieces() -> None:
    """An answer is whole when as many bytes came as its head says."""
    whole = response("200 OK", b"ready")
    found = called(lambda _: [whole[:9], whole[9:30], whole[30:]], amount=3)

    assert (found["answers"], found["errors"]) == (3, 0)
    assert {body for _, body in found["samples"]} == {"ready"}


def test_another_status_is_an_error() -> None:
    """An answer with another status than the plan's is counted, and the first one is told."""
    found = called(lambda _: [response("503 Busy", b"later")], amount=3)

    assert found["errors"] == 3
    assert found["first_error"] == "status 503: later"


def test_a_plan_for_some_time_begins_its_book_anew() -> None:
    """Within its time a plan asks more requests than its book has."""
    found = called(lambda _: [response("200 OK", b"")], seconds=0.2)

    assert found["answers"] > len(BOOK)


def test_customers_are_the_same_for_the_same_seed() -> None:
    """Resampled customers and random rows are decided by their seed, and have ids of 9 characters."""
    for make in (resampled, random_rows):
        table = make(50, seed=1, prefix="N")
        assert table.equals(make(50, seed=1, prefix="N"))
        assert not table.drop_columns(ENTITY).equals(make(50, seed=2, prefix="N").drop_columns(ENTITY))
        assert {len(entity) for entity in table[ENTITY].to_pylist()} == {9}


def test_a_line_of_a_book_becomes_a_request() -> None:
    """A line is a method, a path and maybe a body, which is sent with its length."""
    assert BOOK[0] == b"GET /a HTTP/1.1\r\nHost: bench\r\n\r\n"
    assert BOOK[2].endswith(b'Content-Length: 7\r\n\r\n{"x":1}')
