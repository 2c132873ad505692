"""Online scores go back into the active snapshot, so that the next question finds them there.

Under a budget and in the background: a wave of misses must not become a wave of writes, and a write that fails costs
only the next forward pass.
"""

import asyncio
from collections.abc import Sequence

from shared.clock import Clock
from shared.errors import StoreError
from shared.snapshot import SnapshotMeta
from shared.store.interfaces import OnlineWriter
from shared.telemetry import Metrics

MAX_IN_FLIGHT = 128


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
    """Writes online scores into a snapshot, in tasks of its own: no caller waits for them or can cancel them."""

    def __init__(self, writer: OnlineWriter, budget: TokenBucket, metrics: Metrics) -> None:
        self._writer = writer
        self._budget = budget
        self._metrics = metrics
        self._tasks: set[asyncio.Task[None]] = set()

    def offer(self, meta: SnapshotMeta, entity_id: str, scores: Sequence[float], scored_at: int) -> bool:
        """Writes it soon, or drops it if there is more than the budget allows; whether it will try."""
        if len(self._tasks) >= MAX_IN_FLIGHT or not self._budget.take():
            self._metrics.write_back("over_budget")
            return False
        task = asyncio.create_task(self.write(meta, entity_id, scores, scored_at))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """Returns when nothing is in flight any more: the writer's own timeout bounds it."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def write(self, meta: SnapshotMeta, entity_id: str, scores: Sequence[float], scored_at: int) -> None:
        """Writes it now; a failure is counted, and costs only the next forward pass."""
        try:
            written = await self._writer.write_back(meta, entity_id, scores, scored_at)
        except StoreError:
            self._metrics.write_back("failed")
        else:
            self._metrics.write_back("written" if written else "bucket_gone")
