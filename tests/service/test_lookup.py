import asyncio
from collections.abc import Sequence

import pytest
from support.snapshots import load, promote, publish_batch, snapshot_meta

from service.lookup import Cache, Hit, Miss, RejectedInBatch, StoreDown, View
from service.pointer import Pointer
from shared.codes import Code
from shared.errors import StoreDown as StoreDownError
from shared.errors import StoreRefused
from shared.snapshot import Active, Lookup, SnapshotMeta
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore


class _Counted:
    """A reader that counts its round trips."""

    def __init__(self, memory: MemoryStore) -> None:
        self.trips: list[str] = []
        self._reader = memory.async_store.reader
        self.active_of = self._reader.active
        self.snapshots = self._reader.snapshots
        self.ping = self._reader.ping

    async def active(self) -> Active | None:
        self.trips.append("active")
        return await self.active_of()

    async def lookup(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        self.trips.append("lookup")
        return await self._reader.lookup(meta, ids)


def _look_up(cache: Cache, *ids: str) -> View:
    return asyncio.run(cache.look_up(ids))


def _cache(memory: MemoryStore) -> tuple[Cache, Pointer]:
    pointer = Pointer(memory.async_store.reader, FrozenClock())
    return Cache(memory.async_store.reader, pointer, FrozenClock()), pointer


def _publish(memory: MemoryStore, snapshot: str, scores: dict[str, float]) -> SnapshotMeta:
    meta = load(memory.store, snapshot_meta(snapshot), scores)
    promote(memory.store, snapshot)
    return meta


def test_each_outcome_is_told_apart() -> None:
    """Known, known but rejected, never seen, and lost are four answers, not one."""
    memory = MemoryStore()
    meta = _publish(memory, "1-A", {"a": 0.5, "c": 0.5})
    memory.store.writer.fill(meta, [publish_batch(meta, {}, {"r": (Code.NOT_A_NUMBER, 1)})])
    memory.corrupt(meta, "c")
    cache, _ = _cache(memory)

    assert _look_up(cache, "a", "r", "n", "c").outcomes == {
        "a": Hit(scores=(0.5,), scored_at=meta.scored_at, online=False),
        "r": RejectedInBatch(code=Code.NOT_A_NUMBER, field="returns", scored_at=meta.scored_at),
        "n": Miss(),
        "c": StoreDown("lost"),
    }


def test_a_lost_bucket_is_no_miss() -> None:
    """An evicted bucket says nothing about whether the entity is known."""
    memory = MemoryStore()
    meta = _publish(memory, "1-A", {"a": 0.5})
    memory.lose_bucket(meta, "a")

    assert _look_up(_cache(memory)[0], "a").outcomes == {"a": StoreDown("lost")}


@pytest.mark.parametrize("failure", [StoreDownError("gone"), StoreRefused("read-only")])
def test_an_outage_is_no_miss(failure: Exception) -> None:
    """A store that does not answer, or refuses, leaves every entity undecided, whether or not a pointer is known."""
    memory = MemoryStore()
    _publish(memory, "1-A", {"a": 0.5})
    cache, pointer = _cache(memory)
    memory.failure = failure  # type: ignore[assignment]
    assert _look_up(cache, "a", "b").outcomes == {"a": StoreDown("down"), "b": StoreDown("down")}

    memory.failure = None
    asyncio.run(pointer.refresh())
    memory.failure = failure  # type: ignore[assignment]
    assert _look_up(cache, "a").outcomes == {"a": StoreDown("down")}


def test_before_the_first_promotion_everything_is_a_miss() -> None:
    """A store that answers and has no pointer knows nobody."""
    assert _look_up(_cache(MemoryStore())[0], "a") == View(active=None, outcomes={"a": Miss()})


def test_an_old_pointer_does_not_make_an_entity_unknown() -> None:
    """What is absent or lost is looked for once more where the pointer is now, even before the next poll."""
    memory = MemoryStore()
    _publish(memory, "1-A", {"a": 0.25})
    cache, pointer = _cache(memory)
    asyncio.run(pointer.refresh())
    _publish(memory, "2-B", {"a": 0.5, "b": 0.75})
    memory.store.control.retire("1-A")

    view = _look_up(cache, "b")

    assert view.active is not None
    assert view.active.meta.snapshot == "2-B"
    assert isinstance(view.outcomes["b"], Hit)


def test_a_bulk_is_looked_up_in_one_snapshot_even_across_a_flip() -> None:
    """If one of many ids sends the reader to the new snapshot, all of them are answered from it."""
    memory = MemoryStore()
    _publish(memory, "1-A", {"a": 0.25})
    cache, pointer = _cache(memory)
    asyncio.run(pointer.refresh())
    _publish(memory, "2-B", {"a": 0.5, "b": 0.75})

    outcomes = _look_up(cache, "a", "b").outcomes

    assert [one.scores for one in outcomes.values() if isinstance(one, Hit)] == [(0.5,), (0.75,)]


def test_a_hit_costs_one_round_trip_however_many_ids() -> None:
    """The pointer is not asked for what the snapshot answers."""
    memory = MemoryStore()
    _publish(memory, "1-A", {"a": 0.25, "b": 0.5})
    reader = _Counted(memory)
    pointer = Pointer(reader, FrozenClock())
    cache = Cache(reader, pointer, FrozenClock())
    asyncio.run(pointer.refresh())
    reader.trips.clear()

    _look_up(cache, "a", "b")

    assert reader.trips == ["lookup"]


def test_a_miss_stands_while_the_pointer_cannot_be_read() -> None:
    """The snapshot was whole: that the pointer could not be read once more does not undo what it said."""
    memory = MemoryStore()
    _publish(memory, "1-A", {"a": 0.25})
    cache, pointer = _cache(memory)

    async def story() -> View:
        await pointer.refresh()
        reader = memory.async_store.reader
        reader.active = _fail
        return await cache.look_up(["n"])

    assert asyncio.run(story()).outcomes == {"n": Miss()}


async def _fail() -> None:
    raise StoreDownError("gone")
