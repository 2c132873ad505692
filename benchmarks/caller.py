"""The project's own client: keep-alive connections that each send the next request when the last was answered.

A process of its own, ``python -m benchmarks.caller``: a plan comes in as JSON on standard input, and what was found
goes out as JSON. It reads no more of an answer than its status and its length, so that it costs little beside a server.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, cast

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_END = b"\r\n\r\n"
_STATUS = slice(9, 12)
_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Requests of a book from its line ``first`` on: ``amount`` of them or, again and again, for ``seconds``."""

    port: int
    book: str
    connections: int
    first: int = 0
    amount: int | None = None
    seconds: float | None = None
    status: int = 200
    samples: int = 20
    host: str = "127.0.0.1"


@dataclass(slots=True)
class Tally:
    """What all connections of a plan share."""

    plan: Plan
    requests: Iterator[tuple[int, bytes]]
    until: float
    open: int = 0
    spans: list[float] = field(default_factory=list)
    errors: int = 0
    first_error: str = ""
    samples: list[tuple[int, str]] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def next(self) -> tuple[int, bytes] | None:
        return None if time.perf_counter() >= self.until else next(self.requests, None)

    def failed(self, what: str) -> None:
        self.errors += 1
        self.first_error = self.first_error or what[:300]

    def close_one(self) -> None:
        self.open -= 1
        if not self.open:
            self.ended.set()


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._status = b"%d" % tally.plan.status
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._line = 0
        self._sent = 0.0
        self._waits = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        self._send(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        body = data.find(_END) + len(_END)
        found = _LENGTH.search(data, 0, body) if body >= len(_END) else None
        if found is None or len(data) < body + int(found[1]):
            self._buffer = data
            return
        self._buffer = b""
        self._answered(data, body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waits:
            self._tally.failed(f"the connection was closed before an answer ({type(exc).__name__})")
        self._tally.close_one()

    def _answered(self, data: bytes, body: int) -> None:
        tally = self._tally
        tally.spans.append(time.perf_counter() - self._sent)
        self._waits = False
        if data[_STATUS] != self._status:
            tally.failed(f"status {data[_STATUS].decode()}: {data[body:].decode(errors='replace')}")
        elif len(tally.samples) < tally.plan.samples:
            tally.samples.append((self._line, data[body:].decode()))
        if self._transport is not None:
            self._send(self._transport)

    def _send(self, transport: asyncio.Transport) -> None:
        request = self._tally.next()
        if request is None:
            transport.close()
            return
        self._line, text = request
        self._waits = True
        self._sent = time.perf_counter()
        transport.write(text)


async def call(plan: Plan, texts: Sequence[bytes]) -> dict[str, Any]:
    """Carries out a plan over the requests of its book."""
    lines = cycle(enumerate(texts)) if plan.amount is None else iter(enumerate(texts))
    requests = islice(lines, plan.first, None if plan.amount is None else plan.first + plan.amount)
    started = time.perf_counter()
    tally = Tally(plan, requests, until=started + (plan.seconds or float("inf")), open=plan.connections)
    loop = asyncio.get_running_loop()
    for _ in range(plan.connections):
        await loop.create_connection(lambda: Caller(tally), plan.host, plan.port)
    async with asyncio.timeout((plan.seconds or 600) + _GRACE_SECONDS):
        await tally.ended.wait()
    return _found(tally, time.perf_counter() - started)


def request_of(line: str) -> bytes:
    """A line of a book, ``METHOD PATH`` or ``METHOD PATH BODY``, as HTTP."""
    method, path, *body = line.split(" ", 2)
    text = body[0].encode() if body else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    return head.encode() + b"\r\n" + text


def _found(tally: Tally, seconds: float) -> dict[str, Any]:
    spans = sorted(tally.spans)
    return {
        "answers": len(spans),
        "seconds": seconds,
        "p50_ms": _share(spans, 0.5),
        "p99_ms": _share(spans, 0.99),
        "errors": tally.errors,
        "first_error": tally.first_error,
        "samples": tally.samples,
    }


def _share(spans: list[float], share: float) -> float:
    """The time within which so many were answered, in milliseconds."""
    return spans[min(len(spans) - 1, int(share * len(spans)))] * 1000 if spans else 0.0


def main() -> None:
    plan = Plan(**json.loads(sys.stdin.read()))
    texts = [request_of(line) for line in Path(plan.book).read_text(encoding="utf-8").splitlines()]
    print(json.dumps(uvloop.run(call(plan, texts))))


if __name__ == "__main__":
    main()
