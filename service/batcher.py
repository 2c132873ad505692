"""Micro-batching: the rows of all requests that wait share the next forward pass.

Each row is encoded first, so that a bad one never reaches the queue. An idle service scores at once; while a pass
runs, rows collect for the next one. One pass at a time keeps the graph's own threads busy.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from service.forward import Row
from shared.clock import Clock
from shared.codes import Rejection
from shared.encode import Encoded
from shared.errors import NotReady, Overloaded, WrongShape
from shared.metrics import Metrics
from shared.telemetry import StageTimer

if TYPE_CHECKING:  # the scorer brings torch, which a process loads while it already answers its probes
    from shared.scorer import Scored, Scorer

REMEMBERED_PASSES = 15
"""A pass is expected to take the median of these: one that was held up does not make the next callers unwelcome."""

ROWS_ENCODED_HERE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """``batch_rows`` of one pass at most; ``wait_seconds`` that the oldest row may be held back for a fuller pass, once
    another has ended; ``queue_rows`` that may wait."""

    batch_rows: int
    wait_seconds: float
    queue_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """Where long work is done, off the event loop. Encoding has its own, so that it goes on while a pass runs."""

    encode: Executor
    forward: Executor


@dataclass(slots=True, kw_only=True, eq=False)
class _Piece:
    """Rows of one request that go through one pass together."""

    encoded: Encoded
    since: float
    done: "asyncio.Future[Scored]"
    forward_seconds: float = 0.0


class Batcher:
    """A RowScorer. Everything but encoding and the pass itself happens on the event loop: there is nothing to lock."""

    def __init__(self, scorer: "Scorer", threads: Threads, limits: Limits, clock: Clock, metrics: Metrics) -> None:
        self._scorer = scorer
        self._threads = threads
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._waiting: dict[_Piece, None] = {}
        self._rows_encoding = 0
        self._rows_queued = 0
        self._full = asyncio.Event()
        self._passes: asyncio.Task[None] | None = None
        self._pass_began: float | None = None
        self._recent: deque[float] = deque(maxlen=REMEMBERED_PASSES)
        self._typical = 0.0
        self._has_tensors = bool(scorer.encoder.schema.tensors)
        self._telling = False

    @property
    def waiting_rows(self) -> int:
        """Rows that were let in and whose pass has not begun."""
        return self._rows_encoding + self._rows_queued

    async def score(self, rows: Sequence[Row], stages: StageTimer, until: float | None = None) -> "Scored":
        self._admit(len(rows), until)
        encoded = await self._encode(rows, stages)
        if not len(encoded):
            return _empty(len(self._scorer.columns), encoded.rejections)
        return _joined(await self._await_passes(encoded, stages), encoded.rejections)

    async def check(self, row: Row) -> Rejection | None:
        loop = asyncio.get_running_loop()
        encoded = await loop.run_in_executor(self._threads.encode, self._scorer.encoder.rows, [row])
        return encoded.rejections[0] if encoded.rejections else None

    async def ping(self) -> None:
        """Returns once the thread of the passes is free: a pass that hangs holds it."""
        await asyncio.get_running_loop().run_in_executor(self._threads.forward, _nothing)

    async def close(self) -> None:
        """Ends without the pass that runs. Whoever still waits is told so."""
        if self._passes is not None:
            self._passes.cancel()
            await asyncio.wait({self._passes})
        for piece in self._waiting:
            _fail(piece, NotReady("this process is stopping; ask another one"))

    def _admit(self, rows: int, until: float | None) -> None:
        """Overloaded where the rows have no place in the queue, or would not come out of it in time.

        Where nothing waits, any number is let in: no request is too large for an idle service.
        """
        queued = self.waiting_rows
        excess = queued + rows - self._limits.queue_rows
        if queued and excess > 0:
            self._metrics.shed("queue_full", rows)
            room = self._seconds_until(self._passes_for(min(excess, queued)) - 1)  # rows leave when their pass begins
            raise Overloaded("the queue is full (FORESCORE_SERVICE__MAX_QUEUE_ROWS); try again later", retry_after=room)
        if until is None:
            return
        needed = self._seconds_until(self._passes_for(queued + rows)) or 0.0
        late = needed - (until - asyncio.get_running_loop().time())
        if late > 0:
            self._metrics.shed("deadline", rows)
            raise Overloaded(
                "more is waiting than can be scored within the deadline; try again later", retry_after=late
            )

    def _passes_for(self, rows: int) -> int:
        return ceil(rows / self._limits.batch_rows)

    def _seconds_until(self, passes: int) -> float | None:
        """From now until the pass that runs and so many more have ended, by what recent ones took.

        None for an idle service: only by scoring can it find out that a slow pass was an exception; and before the
        first pass has ended.
        """
        began = self._pass_began
        if not self._recent or (began is None and not self.waiting_rows):
            return None
        typical = self._typical
        running = 0.0 if began is None else max(0.0, typical - (self._clock.now() - began))
        return running + typical * passes

    async def _encode(self, rows: Sequence[Row], stages: StageTimer) -> Encoded:
        """Rejects what breaks a rule: here where that takes microseconds, which a way to a thread and back would
        exceed; elsewhere if there are many rows, or tensors."""
        encoder = self._scorer.encoder
        if len(rows) <= ROWS_ENCODED_HERE and not self._has_tensors:
            with stages.stage("encode"):
                return encoder.rows(rows)
        loop = asyncio.get_running_loop()
        self._rows_encoding += len(rows)
        self._tell_depth()
        try:
            with stages.stage("encode"):
                return await loop.run_in_executor(self._threads.encode, encoder.rows, rows)
        finally:
            self._rows_encoding -= len(rows)
            self._tell_depth()

    async def _await_passes(self, encoded: Encoded, stages: StageTimer) -> "list[Scored]":
        """Queues the rows, a pass's worth at a time. A caller who is cancelled takes what has not begun along."""
        loop = asyncio.get_running_loop()
        parts = _cut(encoded, self._limits.batch_rows)  # without the rejections: those are told already
        pieces = [_Piece(encoded=part, since=loop.time(), done=loop.create_future()) for part in parts]
        start = self._clock.now()
        self._queue(pieces)
        try:
            return [await pieces[0].done] if len(pieces) == 1 else await asyncio.gather(*(one.done for one in pieces))
        finally:
            self._withdraw([piece for piece in pieces if piece in self._waiting])
            forward = sum(piece.forward_seconds for piece in pieces)
            stages.add("queue", max(0.0, self._clock.now() - start - forward))
            stages.add("forward", forward)

    def _queue(self, pieces: Sequence[_Piece]) -> None:
        self._waiting.update(dict.fromkeys(pieces))
        self._rows_queued += sum(len(piece.encoded) for piece in pieces)
        self._tell_depth()
        if self._rows_queued >= self._limits.batch_rows:
            self._full.set()
        if self._passes is None or self._passes.done():
            self._passes = asyncio.get_running_loop().create_task(self._run_passes())

    def _withdraw(self, pieces: Sequence[_Piece]) -> None:
        for piece in pieces:
            del self._waiting[piece]
            self._rows_queued -= len(piece.encoded)
        if pieces:
            self._tell_depth()

    async def _run_passes(self) -> None:
        """One pass after the other until nobody waits: the first at once, the next with what has come meanwhile."""
        while self._waiting:
            await self._run(self._take())
            await self._collect()

    async def _collect(self) -> None:
        """Holds the next pass back for what its oldest row may still wait, unless it is full before."""
        if not self._waiting or self._rows_queued >= self._limits.batch_rows:
            return
        oldest = next(iter(self._waiting))
        left = oldest.since + self._limits.wait_seconds - asyncio.get_running_loop().time()
        if left > 0:
            self._full.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._full.wait()

    def _take(self) -> list[_Piece]:
        """The pieces of the next pass, oldest first. A piece has no more rows than a pass: the first always fits."""
        taken: list[_Piece] = []
        rows = 0
        for piece in self._waiting:
            rows += len(piece.encoded)
            if rows > self._limits.batch_rows:
                break
            taken.append(piece)
        self._withdraw(taken)
        return taken

    async def _run(self, pieces: Sequence[_Piece]) -> None:
        """One pass. Whatever it raises belongs to those who are in it: the next pass begins all the same."""
        began = self._pass_began = self._clock.now()
        try:
            parts = await asyncio.get_running_loop().run_in_executor(
                self._threads.forward, _pass, self._scorer, [piece.encoded for piece in pieces]
            )
        except asyncio.CancelledError:
            for piece in pieces:
                _fail(piece, NotReady("this process is stopping; ask another one"))
            raise
        except Exception as error:  # noqa: BLE001 - the model is code of others, and its callers are told
            self._passed(pieces, self._clock.now() - began)
            for piece in pieces:
                _fail(piece, error)
        else:
            self._passed(pieces, self._clock.now() - began)
            for piece, scored in zip(pieces, parts, strict=True):
                if not piece.done.done():
                    piece.done.set_result(scored)
        finally:
            self._pass_began = None

    def _passed(self, pieces: Sequence[_Piece], seconds: float) -> None:
        self._recent.append(seconds)
        self._typical = median(self._recent)
        self._metrics.forward(sum(len(piece.encoded) for piece in pieces))
        for piece in pieces:
            piece.forward_seconds = seconds

    def _tell_depth(self) -> None:
        """Once in a turn of the event loop, however often it changes."""
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell_depth_now)

    def _tell_depth_now(self) -> None:
        self._telling = False
        self._metrics.queue(self.waiting_rows)


def _pass(scorer: "Scorer", parts: Sequence[Encoded]) -> "list[Scored]":
    """One forward pass for all parts, and to each part what became of its rows."""
    from shared.scorer import score_each  # noqa: PLC0415 - torch, see above

    scored = score_each(scorer, parts[0] if len(parts) == 1 else Encoded.concat(parts))
    rows = sum(map(len, parts))
    if len(scored.rows) + len(scored.rejections) != rows:
        raise WrongShape(f"{rows} rows were given to the model, and {len(scored.rows)} came back")
    if len(parts) == 1:
        return [scored]
    return _whole_parts(scored, parts) if not scored.rejections else _mixed_parts(scored, parts)


def _cut(encoded: Encoded, rows: int) -> list[Encoded]:
    """A pass's worth each."""
    if len(encoded) <= rows:
        return [replace(encoded, rejections=())] if encoded.rejections else [encoded]
    cuts = range(0, len(encoded), rows)
    return [encoded.take(np.arange(cut, min(cut + rows, len(encoded)))) for cut in cuts]


def _whole_parts(scored: "Scored", parts: Sequence[Encoded]) -> "list[Scored]":
    """To each part the scores of its rows, where all have one."""
    from shared.scorer import Scored  # noqa: PLC0415 - torch, see above

    ends = accumulate(map(len, parts))
    return [
        Scored(rows=part.rows, scores=scored.scores[end - len(part) : end], rejections=())
        for part, end in zip(parts, ends, strict=True)
    ]


def _mixed_parts(scored: "Scored", parts: Sequence[Encoded]) -> "list[Scored]":
    from shared.scorer import Scored  # noqa: PLC0415 - torch, see above

    found: list[Scored] = []
    start = 0
    for part in parts:
        end = start + len(part)
        mine = (scored.rows >= start) & (scored.rows < end)
        rejections = tuple(
            Rejection(row=int(part.rows[one.row - start]), code=one.code, field=one.field)
            for one in scored.rejections
            if start <= one.row < end
        )
        found.append(
            Scored(rows=part.rows[scored.rows[mine] - start], scores=scored.scores[mine], rejections=rejections)
        )
        start = end
    return found


def _nothing() -> None: ...


def _joined(parts: "Sequence[Scored]", rejections: tuple[Rejection, ...]) -> "Scored":
    """What became of all rows of a request: of those that were in passes, and of those that the encoder rejected."""
    from shared.scorer import Scored  # noqa: PLC0415 - torch, see above

    if len(parts) == 1 and not rejections:
        return parts[0]
    refused = [*rejections, *(one for part in parts for one in part.rejections)]
    return Scored(
        rows=np.concatenate([part.rows for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
        rejections=tuple(sorted(refused, key=lambda one: one.row)),
    )


def _empty(columns: int, rejections: tuple[Rejection, ...]) -> "Scored":
    from shared.scorer import Scored  # noqa: PLC0415 - torch, see above

    return Scored(rows=np.empty(0, np.int64), scores=np.empty((0, columns), np.float32), rejections=rejections)


def _fail(piece: _Piece, error: Exception) -> None:
    if not piece.done.done():
        piece.done.set_exception(error)
