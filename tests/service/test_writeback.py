import asyncio
from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from support.snapshots import load, snapshot_meta

from service.writeback import MAX_IN_FLIGHT, TokenBucket, WriteBack
from shared.errors import StoreDown
from shared.snapshot import Found, SnapshotMeta
from shared.telemetry import Metrics
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore


def _count(registry: CollectorRegistry, outcome: str) -> float | None:
    return registry.get_sample_value("forescore_write_backs_total", {"outcome": outcome})


def test_the_budget_refills_with_time() -> None:
    """So many a second, and never more than that at once."""
    clock = FrozenClock()
    budget = TokenBucket(2, clock)
    assert [budget.take() for _ in range(3)] == [True, True, False]

    clock.advance(0.5)
    assert [budget.take() for _ in range(2)] == [True, False]

    clock.advance(100)
    assert [budget.take() for _ in range(3)] == [True, True, False]


def test_what_is_offered_is_written_and_counted() -> None:
    """A score is there afterwards with its mark of having come online; one without a bucket is not."""
    memory, registry = MemoryStore(), CollectorRegistry()
    meta = load(memory.store, snapshot_meta("1-A"), {"a": 0.5})

    async def story() -> None:
        write_back = WriteBack(memory.async_store.online, TokenBucket(10, FrozenClock()), Metrics(registry))
        write_back.offer(meta, "b", [0.75], 1_800_000_000)
        write_back.offer(snapshot_meta("0-retired"), "b", [0.75], 1_800_000_000)
        await write_back.close()

    asyncio.run(story())
    assert memory.store.writer.read(meta, ["b"]) == [Found(scores=(0.75,), scored_at=1_800_000_000, online=True)]
    assert (_count(registry, "written"), _count(registry, "bucket_gone")) == (1, 1)


def test_over_the_budget_it_is_dropped_and_counted() -> None:
    """A wave of misses does not become a wave of writes."""
    memory, registry = MemoryStore(), CollectorRegistry()
    meta = load(memory.store, snapshot_meta("1-A"), {"a": 0.5})

    async def story() -> None:
        write_back = WriteBack(memory.async_store.online, TokenBucket(2, FrozenClock()), Metrics(registry))
        for entity in "bcd":
            write_back.offer(meta, entity, [0.75], 1_800_000_000)
        await write_back.close()

    asyncio.run(story())
    assert (_count(registry, "written"), _count(registry, "over_budget")) == (2, 1)


def test_a_failure_is_counted_and_harms_nobody() -> None:
    """The answer was given long ago; the next question is scored anew."""
    memory, registry = MemoryStore(), CollectorRegistry()
    meta = load(memory.store, snapshot_meta("1-A"), {"a": 0.5})
    memory.failure = StoreDown("gone")

    async def story() -> None:
        write_back = WriteBack(memory.async_store.online, TokenBucket(2, FrozenClock()), Metrics(registry))
        write_back.offer(meta, "b", [0.75], 1_800_000_000)
        await write_back.close()

    asyncio.run(story())
    assert _count(registry, "failed") == 1


def test_writes_in_flight_are_bounded() -> None:
    """A store that hangs does not gather tasks without end."""
    registry, let_go = CollectorRegistry(), asyncio.Event()

    class Hung:
        async def write_back(self, meta: SnapshotMeta, entity_id: str, scores: Sequence[float], scored_at: int) -> bool:
            await let_go.wait()
            return True

    async def story() -> None:
        write_back = WriteBack(Hung(), TokenBucket(10_000, FrozenClock()), Metrics(registry))
        for number in range(MAX_IN_FLIGHT + 5):
            write_back.offer(snapshot_meta("1-A"), str(number), [0.75], 1_800_000_000)
        let_go.set()
        await write_back.close()

    asyncio.run(story())
    assert (_count(registry, "written"), _count(registry, "over_budget")) == (MAX_IN_FLIGHT, 5)
