import asyncio

import pytest
from support.snapshots import load, promote, snapshot_meta

from service.pointer import Pointer
from shared.errors import StoreDown
from shared.snapshot import Active, Listed, Lookup, SnapshotMeta
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore


class _Slow:
    """A reader whose answers come when the test says so."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[Active | None]] = []

    async def active(self) -> Active | None:
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    async def lookup(self, meta: SnapshotMeta, ids: object) -> list[Lookup]:
        raise AssertionError("the pointer asks for the active snapshot alone")

    async def snapshots(self) -> list[Listed]:
        raise AssertionError("the pointer asks for the active snapshot alone")

    async def ping(self) -> None:
        raise AssertionError("the pointer asks for the active snapshot alone")


def _promoted(memory: MemoryStore, snapshot: str) -> None:
    load(memory.store, snapshot_meta(snapshot), {"a": 0.5})
    promote(memory.store, snapshot)


def test_the_last_known_pointer_outlives_the_store() -> None:
    """A store that is gone, or came back empty, does not say which snapshot was promoted last."""
    memory = MemoryStore()
    _promoted(memory, "1-A")
    pointer = Pointer(memory.async_store.reader, FrozenClock())

    async def story() -> None:
        await pointer.refresh()
        memory.failure = StoreDown("gone")
        with pytest.raises(StoreDown):
            await pointer.refresh()
        assert not pointer.reachable
        memory.failure = None
        memory.lose_everything()
        await pointer.refresh()

    asyncio.run(story())
    assert (pointer.reachable, pointer.lost) == (True, True)
    assert pointer.active is not None
    assert pointer.active.meta.snapshot == "1-A"
    _promoted(memory, "1-A")
    asyncio.run(pointer.refresh())
    assert not pointer.lost


def test_its_age_counts_from_the_last_answer() -> None:
    """A silent store makes the pointer older, an answer makes it new."""
    memory, clock = MemoryStore(), FrozenClock()
    pointer = Pointer(memory.async_store.reader, clock)
    assert pointer.age() is None
    assert not pointer.known

    asyncio.run(pointer.refresh())
    clock.advance(7)

    assert pointer.known
    assert pointer.age() == 7


def test_an_answer_that_was_overtaken_does_not_turn_the_pointer_back() -> None:
    """Of two questions in flight, the answer to the later one stands, whichever arrives first."""
    slow = _Slow()
    pointer = Pointer(slow, FrozenClock())

    async def story() -> None:
        first, second = asyncio.create_task(pointer.refresh()), asyncio.create_task(pointer.refresh())
        await asyncio.sleep(0)  # both have asked
        slow.answers[1].set_result(Active(meta=snapshot_meta("2-B"), epoch=2))
        await second
        slow.answers[0].set_result(Active(meta=snapshot_meta("1-A"), epoch=1))
        await first

    asyncio.run(story())
    assert pointer.active is not None
    assert pointer.active.meta.snapshot == "2-B"


def test_the_watch_never_stops_looking() -> None:
    """Whatever one reading raises, the next one is made."""
    readings = 0

    class Broken(_Slow):
        async def active(self) -> Active | None:
            nonlocal readings
            readings += 1
            raise (StoreDown("gone") if readings % 2 else RuntimeError("a fault of ours"))

    async def stop_after_four(_: float) -> None:
        if readings == 4:
            raise asyncio.CancelledError

    async def story() -> None:
        with pytest.raises(asyncio.CancelledError):
            await Pointer(Broken(), FrozenClock()).watch(1, sleep=stop_after_four)

    asyncio.run(story())
    assert readings == 4
