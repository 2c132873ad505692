"""Online scores go back into the active snapshot, so that the next question finds them there.

Under a budget and in the background: a wave of misses must not become a wave of writes, and a write that fails costs
only the next forward pass. One write is on its way at a time; what is offered meanwhile goes with the next one.
"""

import asyncio
from collections.abc import Sequence

from shared.clock import Clock
from shared.errors import StoreError
from shared.metrics import Metrics
from shared.snapshot import SnapshotMeta
from shared.store.interfaces import OnlineScore, OnlineWriter

MAX_WAITING = 1024
"""The most scores that are kept in memory for a store that is slow to take them."""
MAX_TOGETHER = 256


class TokenBucket:
    """Allows ``per_second`` events each second, and as many at once after a quiet second."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._rate = per_second
        self._clock = clock
        self._tokens = float(per_second)
        self._filled_at = clock.now()

    def take(self) -> bool:
        """Whether one more is allowed now; takes it."""
        now = self._clock.now()
        self._tokens = min(self._rate, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class WriteBack:
    """Writes online scores into a snapshot, in a task of its own: no caller waits for it or can cancel it."""

    def __init__(self, writer: OnlineWriter, budget: TokenBucket, metrics: Metrics) -> None:
        self._writer = writer
        self._budget = budget
        self._metrics = metrics
        self._waiting: dict[str, tuple[SnapshotMeta, OnlineScore]] = {}
        self._written: dict[str, asyncio.Event] = {}
        self._task: asyncio.Task[None] | None = None

    def offer(self, meta: SnapshotMeta, entity_id: str, scores: Sequence[float], scored_at: int) -> bool:
        """Writes it soon, or drops it if there is more than the budget allows; whether it will try."""
        if len(self._waiting) + len(self._written) >= MAX_WAITING or not self._budget.take():
            self._metrics.write_back("over_budget")
            return False
        self._waiting[entity_id] = (meta, OnlineScore(entity_id, scores, scored_at))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())
        return True

    async def withdraw(self, entity_id: str) -> None:
        """Drops what was offered for the entity; what is being written is written when this returns."""
        if self._waiting.pop(entity_id, None) is not None:
            self._metrics.write_back("overtaken")
        written = self._written.get(entity_id)
        if written is not None:
            await written.wait()

    async def close(self) -> None:
        """Returns when nothing is left to write: the writer's own timeout bounds it."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def write(self, meta: SnapshotMeta, scores: Sequence[OnlineScore]) -> None:
        """Writes them now; a failure is counted, and costs only the next forward pass."""
        try:
            written = await self._writer.write_back(meta, scores)
        except StoreError:
            self._metrics.write_back("failed", len(scores))
            return
        there = sum(written)
        self._metrics.write_back("written", there)
        self._metrics.write_back("bucket_gone", len(scores) - there)

    async def _write_all(self) -> None:
        while self._waiting:
            meta, scores = self._take()
            done = asyncio.Event()
            self._written = dict.fromkeys((one.entity_id for one in scores), done)
            try:
                await self.write(meta, scores)
            finally:
                self._written = {}
                done.set()

    def _take(self) -> tuple[SnapshotMeta, list[OnlineScore]]:
        """What goes with the next write: of one snapshot, the oldest first."""
        meta = next(iter(self._waiting.values()))[0]
        taken: list[OnlineScore] = []
        for of, one in self._waiting.values():
            if of.snapshot != meta.snapshot or len(taken) == MAX_TOGETHER:
                break
            taken.append(one)
        for one in taken:
            del self._waiting[one.entity_id]
        return meta, taken
