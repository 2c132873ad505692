import asyncio
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import CollectorRegistry
from redis import Redis
from support.polling import eventually
from support.servers import ValkeyProcess
from support.snapshots import load, snapshot_meta
from support.stores import settings_for

from service.writeback import MAX_TOGETHER, MAX_WAITING, TokenBucket, WriteBack
from shared.errors import StoreDown
from shared.layout import Keys, bucket_of
from shared.metrics import Metrics
from shared.snapshot import Found, SnapshotMeta
from shared.store.connect import open_async_store, open_store
from shared.store.interfaces import OnlineScore, OnlineWriter
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

AT = 1_800_000_000


class Writer:
    """Takes all that it is given, when it is let go on."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun: list[list[str]] = []

    async def write_back(self, meta: SnapshotMeta, scores: Sequence[OnlineScore]) -> list[bool]:
        self.begun.append([one.entity_id for one in scores])
        await self.gate.wait()
        return [True] * len(scores)


def _count(registry: CollectorRegistry, outcome: str) -> float | None:
    return registry.get_sample_value("forescore_write_backs_total", {"outcome": outcome})


def _run(
    writer: Callable[[], OnlineWriter], story: Callable[[WriteBack], Awaitable[None]], per_second: int = 10_000
) -> CollectorRegistry:
    registry = CollectorRegistry()

    async def told() -> None:
        write_back = WriteBack(writer(), TokenBucket(per_second, FrozenClock()), Metrics(registry))
        async with asyncio.timeout(30):
            await story(write_back)
            await write_back.close()

    asyncio.run(told())
    return registry


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
    memory = MemoryStore()
    meta = load(memory.store, snapshot_meta("1-A"), {"a": 0.5})

    async def story(write_back: WriteBack) -> None:
        assert write_back.offer(meta, "b", [0.75], AT)
        assert write_back.offer(snapshot_meta("0-retired"), "c", [0.75], AT)

    registry = _run(lambda: memory.async_store.online, story)
    assert memory.store.writer.read(meta, ["b"]) == [Found(scores=(0.75,), scored_at=AT, online=True)]
    assert (_count(registry, "written"), _count(registry, "bucket_gone")) == (1, 1)


def test_over_the_budget_it_is_dropped_and_counted() -> None:
    """A wave of misses does not become a wave of writes: exactly so many go, however many are offered together."""
    memory = MemoryStore()
    meta = load(memory.store, snapshot_meta("1-A"), {"a": 0.5})

    async def story(write_back: WriteBack) -> None:
        assert [write_back.offer(meta, entity, [0.75], AT) for entity in "bcd"] == [True, True, False]

    registry = _run(lambda: memory.async_store.online, story, per_second=2)
    assert (_count(registry, "written"), _count(registry, "over_budget")) == (2, 1)


def test_a_failure_is_counted_and_harms_nobody() -> None:
    """The answer was given long ago; the next question is scored anew."""
    memory = MemoryStore()
    meta = load(memory.store, snapshot_meta("1-A"), {"a": 0.5})
    memory.failure = StoreDown("gone")

    async def story(write_back: WriteBack) -> None:
        write_back.offer(meta, "b", [0.75], AT)
        write_back.offer(meta, "c", [0.75], AT)

    registry = _run(lambda: memory.async_store.online, story)
    assert (_count(registry, "failed"), _count(registry, "written")) == (2, 0)


def test_what_waits_for_a_slow_store_is_bounded() -> None:
    """A store that hangs does not gather scores without end."""
    writer = Writer()

    async def story(write_back: WriteBack) -> None:
        for number in range(MAX_WAITING + 5):
            write_back.offer(snapshot_meta("1-A"), str(number), [0.75], AT)
        writer.gate.set()

    registry = _run(lambda: writer, story)
    assert (_count(registry, "written"), _count(registry, "over_budget")) == (MAX_WAITING, 5)
    assert {len(one) for one in writer.begun} == {MAX_TOGETHER}


def test_what_is_offered_during_a_write_goes_with_the_next() -> None:
    """One write is on its way at a time, and the scores of one turn share it."""
    writer = Writer()

    async def story(write_back: WriteBack) -> None:
        for entity in "ab":
            write_back.offer(snapshot_meta("1-A"), entity, [0.75], AT)
        await eventually(lambda: writer.begun == [["a", "b"]])
        for entity in "cd":
            write_back.offer(snapshot_meta("1-A"), entity, [0.75], AT)
        write_back.offer(snapshot_meta("1-B"), "e", [0.75], AT)
        writer.gate.set()

    registry = _run(lambda: writer, story)
    assert writer.begun == [["a", "b"], ["c", "d"], ["e"]]
    assert _count(registry, "written") == 5


def test_what_was_withdrawn_before_its_write_is_not_written() -> None:
    """New features overtake a score that waits; its neighbours are written."""
    writer = Writer()

    async def story(write_back: WriteBack) -> None:
        for entity in "ab":
            write_back.offer(snapshot_meta("1-A"), entity, [0.75], AT)
        await write_back.withdraw("a")
        await write_back.withdraw("never offered")
        writer.gate.set()

    registry = _run(lambda: writer, story)
    assert writer.begun == [["b"]]
    assert (_count(registry, "written"), _count(registry, "overtaken")) == (1, 1)


def test_a_write_that_has_begun_is_over_when_it_was_withdrawn() -> None:
    """Whoever writes afterwards writes last."""
    writer = Writer()

    async def story(write_back: WriteBack) -> None:
        write_back.offer(snapshot_meta("1-A"), "a", [0.75], AT)
        await eventually(lambda: writer.begun == [["a"]])
        withdrawn = asyncio.ensure_future(write_back.withdraw("a"))
        await asyncio.sleep(0)
        assert not withdrawn.done()
        writer.gate.set()
        await withdrawn

    assert _count(_run(lambda: writer, story), "overtaken") == 0


def test_a_bucket_that_is_gone_or_not_ours_costs_only_its_own(valkey: ValkeyProcess, namespace: str) -> None:
    """Scores of one write lie in several buckets: the others are written."""
    settings, keys = settings_for(valkey.url, namespace), Keys(namespace, "churn")
    with open_store(settings, "churn") as store, Redis.from_url(valkey.url) as client:
        meta = load(store, snapshot_meta("1-A", entities=500), {f"C{number}": 0.5 for number in range(500)})
        buckets = {bucket_of(f"new{number}", meta.buckets): f"new{number}" for number in range(200)}
        (lost, gone), (taken, foreign), *_ = buckets.items()
        whole = [
            f"new{number}" for number in range(200) if bucket_of(f"new{number}", meta.buckets) not in {lost, taken}
        ]
        client.delete(keys.bucket(meta.snapshot, lost))
        client.set(keys.bucket(meta.snapshot, taken), "not a hash")

    async def story() -> list[bool]:
        async with open_async_store(settings, "churn") as store:
            scores = [OnlineScore(entity, [0.75], AT) for entity in (gone, *whole, foreign)]
            return await store.online.write_back(meta, scores)

    assert asyncio.run(story()) == [False, *[True] * len(whole), False]
    with open_store(settings, "churn") as store:
        assert store.writer.read(meta, whole) == [Found(scores=(0.75,), scored_at=AT, online=True)] * len(whole)
