"""How the memory store is made to fail, and how its time goes by; what it promises is in the contract suite."""

import asyncio

import pytest
from support.snapshots import load, promote, snapshot_meta

from shared.errors import Fenced, LeaseHeld, StoreDown, StoreRefused
from shared.snapshot import Lost
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore


def test_a_failure_strikes_both_sides_until_it_is_taken_away() -> None:
    """Every call raises what was set, and works again afterwards."""
    memory = MemoryStore()
    memory.failure = StoreDown("gone")
    with pytest.raises(StoreDown):
        memory.store.catalogue.active()
    with pytest.raises(StoreDown):
        asyncio.run(memory.async_store.reader.ping())
    memory.failure = StoreRefused("OOM")
    with pytest.raises(StoreRefused):
        asyncio.run(memory.async_store.features.write("a", b"", 1))
    memory.failure = None
    assert memory.store.catalogue.active() is None


def test_scores_can_be_lost() -> None:
    """Foreign bytes, an evicted bucket and an empty restart look as in the real store."""
    memory = MemoryStore()
    meta = load(memory.store, snapshot_meta(), {"a": 1.0})
    promote(memory.store, meta.snapshot)
    memory.corrupt(meta, "a")
    assert memory.store.writer.read(meta, ["a"]) == [Lost("corrupt")]
    memory.lose_bucket(meta, "a")
    assert memory.store.writer.read(meta, ["a"]) == [Lost("bucket")]
    memory.lose_everything()
    assert memory.store.catalogue.active() is None
    assert memory.store.catalogue.snapshots() == []


def test_its_time_is_the_clocks() -> None:
    """Leases lapse and features expire when the clock says so."""
    clock = FrozenClock()
    memory = MemoryStore(clock=clock)
    lease = memory.store.leases.acquire("first", 10)
    asyncio.run(memory.async_store.features.write("a", b"x", 10))
    clock.advance(9)
    memory.store.leases.renew(lease)
    clock.advance(9)
    with pytest.raises(LeaseHeld, match="first"):
        memory.store.leases.acquire("second", 10)
    assert asyncio.run(memory.async_store.features.read(["a"])) == [None]
    clock.advance(1)
    with pytest.raises(Fenced):
        memory.store.leases.renew(lease)
    memory.store.leases.acquire("second", 10)
