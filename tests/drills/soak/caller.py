"""The clients of a soak: ``python -m drills.soak.caller``. A plan comes in as JSON, what was found goes out as JSON.

A phase without a rate is a closed loop: each connection asks again when it was answered. With a rate, requests are sent
when they are due whether others were answered or not, and time counts from when a request was due.
"""

import asyncio
import json
import re
import sys
import time
from array import array
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson
import uvloop

HOST = "127.0.0.1"
TICK_SECONDS = 0.002
GRACE_SECONDS = 10
REFUSALS = {429, 503}
LATE = 504
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_RETRY = re.compile(rb"\r\nretry-after:", re.IGNORECASE)
_END = b"\r\n\r\n"


class Truth:
    """What an answer must be; read anew when a snapshot is named that is not known yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read()

    def _read(self) -> None:
        told = orjson.loads(self._path.read_bytes())
        self._snapshots, self._live = told["snapshots"], told["live"]

    def fault(self, entity: str, body: dict[str, Any]) -> str | None:
        """What is wrong with a score; None: nothing."""
        score, snapshot = body["scores"]["buys"], body["snapshot"]
        if snapshot is not None and snapshot not in self._snapshots:
            self._read()
        right = {self._live.get(entity)}
        if snapshot is not None:
            right.add(self._snapshots.get(snapshot, {}).get(entity))
        if body["entity_id"] == entity and score in right:
            return None
        return f"{entity}: {score} from {body['source']} of {snapshot} as {body['entity_id']}'s"


@dataclass
class Tally:
    """What was found in one phase. ``spans`` of the good answers and ``due``, when each was due, belong together."""

    due: "array[float]" = field(default_factory=lambda: array("d"))
    spans: "array[float]" = field(default_factory=lambda: array("d"))
    refusals: "array[float]" = field(default_factory=lambda: array("d"))
    refused_due: "array[float]" = field(default_factory=lambda: array("d"))
    counts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note_wrong(self, what: str) -> None:
        self.counts["wrong"] += 1
        if len(self.wrong) < 10:
            self.wrong.append(what[:300])


class Phase(NamedTuple):
    """What was found in one, which goes on while answers come; when it began, how long it took, and for which share of
    that these clients themselves were at work: near 1, it is they who are measured."""

    tally: Tally
    started: float
    seconds: float
    busy: float


class Connection(asyncio.Protocol):
    """One connection; it asks one thing at a time."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._request: dict[str, Any] | None = None
        self._due = 0.0
        self._tally = load.tally

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it

    def ask(self, request: dict[str, Any], due: float) -> None:
        """Sends a request that was due then."""
        assert self._transport is not None
        self._request, self._due, self._tally = request, due, self._load.tally
        self._transport.write(request["bytes"])
        self._load.asked()

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        body = data.find(_END) + len(_END)
        found = _LENGTH.search(data, 0, body) if body >= len(_END) else None
        if found is None or len(data) < body + int(found[1]):
            self._buffer = data
            return
        self._buffer = b""
        request, self._request = self._request, None
        if request is not None:
            self._judge(request, data[:body], data[body:])
            self._load.answered()
        self._load.free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        request, self._request = self._request, None
        if request is not None:
            self._tally.note_wrong(f"no answer: the connection was closed ({type(exc).__name__})")
            self._load.answered()
        self._load.lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    @property
    def waits(self) -> bool:
        return self._request is not None

    def _judge(self, request: dict[str, Any], head: bytes, body: bytes) -> None:
        tally, span = self._tally, time.perf_counter() - self._due
        status = int(head[9:12])
        tally.statuses[str(status)] += 1
        if (status in REFUSALS and _RETRY.search(head)) or status == LATE:
            tally.counts["late" if status == LATE else "refused"] += 1
            tally.refusals.append(span)
            tally.refused_due.append(self._due)
        elif status != request["status"]:
            tally.note_wrong(f"{request['text'][:60]!r}: {status} {body[:200]!r}")
        elif request["entities"] and (fault := self._fault(request, body)) is not None:
            if fault:
                tally.note_wrong(fault)
        else:
            tally.counts["good"] += 1
            tally.due.append(self._due)
            tally.spans.append(span)

    def _fault(self, request: dict[str, Any], body: bytes) -> str | None:
        """What is wrong with scores; empty: an item was refused."""
        told = orjson.loads(body)
        results = told.get("results", [told])
        for entity, one in zip(request["entities"], results, strict=True):
            if "error" in one:
                if one["error"]["status"] not in {*REFUSALS, LATE}:
                    return f"{entity}: {one['error']}"
                self._tally.counts["refused"] += 1
                return ""
            if (fault := self._load.truth.fault(entity, one)) is not None:
                return fault
        return None


class Load:
    """Connections and what is asked on them, phase by phase."""

    def __init__(self, port: int, book: list[dict[str, Any]], truth: Truth) -> None:
        for request in book:
            request["bytes"] = request["text"].encode()
        self.truth = truth
        self.tally = Tally()
        self._port = port
        self._requests = cycle(book)
        self._idle: deque[Connection] = deque()
        self._all: set[Connection] = set()
        self._closed_loop_until = 0.0
        self._open_questions = 0
        self._opening: set[asyncio.Task[None]] = set()
        self.quiet = asyncio.Event()
        """Nothing is to be answered just now."""

    def asked(self) -> None:
        self._open_questions += 1
        self.quiet.clear()

    def answered(self) -> None:
        self._open_questions -= 1
        if not self._open_questions:
            self.quiet.set()

    def free(self, connection: Connection) -> None:
        """It was answered, and may ask again."""
        if time.perf_counter() < self._closed_loop_until:
            connection.ask(next(self._requests), time.perf_counter())
        else:
            self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def phase(self, plan: dict[str, Any]) -> Phase:
        """Carries out a phase."""
        tally = self.tally = Tally()
        started, worked = time.perf_counter(), time.process_time()
        if plan.get("rate") is None:
            await self._closed(plan["connections"], plan["seconds"])
        else:
            await self._open(plan["rate"], plan["connections"], plan["seconds"])
        seconds = time.perf_counter() - started
        return Phase(tally, started, seconds, (time.process_time() - worked) / seconds)

    async def _closed(self, connections: int, seconds: float) -> None:
        lacking = max(0, connections - len(self._all))
        self._idle.extend(await asyncio.gather(*(self._connect() for _ in range(lacking))))
        self._closed_loop_until = time.perf_counter() + seconds
        for connection in [self._idle.popleft() for _ in range(len(self._idle))]:
            connection.ask(next(self._requests), time.perf_counter())
        await asyncio.sleep(seconds)

    async def _open(self, rate: float, connections: int, seconds: float) -> None:
        """``connections``: the most. What is due when none is free and none may be opened is told as ``unsent``."""
        loop, started, sent = asyncio.get_running_loop(), time.perf_counter(), 0
        while (now := time.perf_counter()) < started + seconds:
            due = int((now - started) * rate)
            for number in range(sent, due):
                if self._idle:
                    self._idle.popleft().ask(next(self._requests), started + number / rate)
                elif len(self._all) + len(self._opening) < connections:
                    task = loop.create_task(self._ask_first(started + number / rate))
                    self._opening.add(task)
                    task.add_done_callback(self._opening.discard)
                else:
                    self.tally.counts["unsent"] += 1
            sent = due
            await asyncio.sleep(TICK_SECONDS)

    async def _ask_first(self, due: float) -> None:
        """On a connection of its own, which may take long: the others do not wait for that."""
        tally = self.tally
        self.asked()
        try:
            connection = await self._connect()
        except OSError as error:
            tally.note_wrong(f"no connection ({type(error).__name__})")
        else:
            connection.ask(next(self._requests), due)
        finally:
            self.answered()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self), HOST, self._port)
        self._all.add(connection)
        return connection

    async def settle(self) -> None:
        """Waits for what is still to be answered; what does not come is told as wrong."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self.quiet.wait()
        for _ in range(sum(one.waits for one in self._all)):
            self.tally.note_wrong(f"no answer within {GRACE_SECONDS} s")

    def close(self) -> None:
        for connection in list(self._all):
            connection.close()


def _found(phase: Phase) -> dict[str, Any]:
    tally, started, seconds, busy = phase
    good = [(due - started, span) for due, span in zip(tally.due, tally.spans, strict=True)]
    thirds = [[span for due, span in good if part <= due * 3 / seconds < part + 1] for part in range(3)]
    return {
        "started": started,
        "seconds": seconds,
        "busy": busy,
        "in_time": sum(due + span <= seconds for due, span in good),
        **{name: tally.counts[name] for name in ("good", "refused", "late", "unsent", "wrong")},
        "statuses": dict(tally.statuses),
        "p50_ms": share(tally.spans, 0.5),
        "p99_ms": share(tally.spans, 0.99),
        "p99_ms_by_thirds": [share(third, 0.99) for third in thirds],
        "refusal_p99_ms": share(tally.refusals, 0.99),
        "last_refused_due": max((due - started for due in tally.refused_due), default=0.0),
        "windows": windows(good, seconds),
        "faults": tally.wrong,
    }


def windows(good: list[tuple[float, float]], seconds: float, width: float = 0.25) -> list[float]:
    """The p99 in milliseconds of each quarter of a second, by when requests were due; -1 where there was none."""
    parts: list[list[float]] = [[] for _ in range(max(1, int(seconds / width)))]
    for due, span in good:
        if 0 <= int(due / width) < len(parts):
            parts[int(due / width)].append(span)
    return [share(part, 0.99) if part else -1.0 for part in parts]


def share(spans: "array[float] | list[float]", part: float) -> float:
    """The time within which so many were answered, in milliseconds."""
    ordered = sorted(spans)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000 if ordered else 0.0


async def call(plan: dict[str, Any], book: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All phases of a plan, one after the other, on the same connections."""
    load = Load(plan["port"], book, Truth(Path(plan["truth"])))
    phases = [await load.phase(phase) for phase in plan["phases"]]
    await load.settle()
    load.close()
    return [_found(phase) for phase in phases]


def main() -> None:
    plan = json.loads(sys.stdin.read())
    book = orjson.loads(Path(plan["book"]).read_bytes())
    sys.stdout.write(json.dumps(uvloop.run(call(plan, book))) + "\n")


if __name__ == "__main__":
    main()
