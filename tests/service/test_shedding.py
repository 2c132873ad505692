"""What a batcher takes on and what it refuses: rows are bounded, and what would come too late is told at once."""

import asyncio
from collections.abc import Awaitable

import pytest
from support.batching import A, B, Bench, C, Model, bench, rounded, run
from support.polling import eventually

from shared.errors import Overloaded
from shared.scorer import Scorer
from shared.testing.clock import FrozenClock


def test_the_queue_is_bounded_in_rows(scorer: Scorer) -> None:
    """A caller with more rows than there is room for is told to come later; one with fewer gets in."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model, queue=5) as desk, asyncio.timeout(30):
            model.gate.clear()
            calls = [desk.start(A)]
            await eventually(lambda: model.passes == [1])
            calls.append(desk.start(A, B, C))
            await eventually(lambda: desk.batcher.waiting_rows == 3)
            with pytest.raises(Overloaded, match="MAX_QUEUE_ROWS"):
                await desk.ask(A, B, C)
            calls.append(desk.start(B, C))
            await eventually(lambda: desk.metric("forescore_queue_rows") == 5)
            model.gate.set()
            await asyncio.gather(*calls)
        assert desk.metric("forescore_shed_rows_total", reason="queue_full") == 3
        assert desk.metric("forescore_queue_rows") == 0

    run(story)


def test_a_request_larger_than_the_queue_is_taken_when_nobody_waits(scorer: Scorer) -> None:
    """No request is refused for ever."""

    async def story() -> None:
        async with bench(Model(scorer), queue=1, batch=2) as desk:
            assert rounded(await desk.ask(A, B, C)) == [0.8581, 0.31, 0.7311]

    run(story)


def test_what_would_come_too_late_is_refused_and_what_would_not_is_taken(scorer: Scorer) -> None:
    """A pass takes 1 s here; one runs since 0.25 s. Two passes need 1.75 s: 1.7 s are too few, and 1.8 s enough."""

    async def story() -> None:
        clock, model = FrozenClock(), Model(scorer)
        async with bench(model, clock=clock) as desk, asyncio.timeout(30):
            await _measured(desk, model, clock, seconds=1.0)
            now = asyncio.get_running_loop().time()
            model.gate.clear()
            calls = [desk.start(A)]
            await eventually(lambda: len(model.passes) == 2)
            clock.advance(0.25)
            with pytest.raises(Overloaded, match="deadline"):
                await desk.ask(B, until=now + 1.7)
            calls += [desk.start(B, until=asyncio.get_running_loop().time() + 1.8), desk.start(C)]
            await eventually(lambda: desk.batcher.waiting_rows == 2)
            model.gate.set()
            assert [rounded(one) for one in await asyncio.gather(*calls)] == [[0.8581], [0.31], [0.7311]]
        assert desk.metric("forescore_shed_rows_total", reason="deadline") == 1

    run(story)


def test_rows_that_wait_already_count(scorer: Scorer) -> None:
    """With two rows a pass and four waiting, the next row is in the third pass from now."""

    async def story() -> None:
        clock, model = FrozenClock(), Model(scorer)
        async with bench(model, clock=clock, batch=2) as desk, asyncio.timeout(30):
            await _measured(desk, model, clock, seconds=1.0)
            model.gate.clear()
            calls = [desk.start(A)]
            await eventually(lambda: len(model.passes) == 2)
            clock.advance(0.5)
            calls.append(desk.start(A, B, C, A))
            await eventually(lambda: desk.batcher.waiting_rows == 4)
            now = asyncio.get_running_loop().time()
            with pytest.raises(Overloaded):
                await desk.ask(B, until=now + 3.4)
            calls.append(desk.start(B, until=now + 10))
            await eventually(lambda: desk.batcher.waiting_rows == 5)
            model.gate.set()
            await asyncio.gather(*calls)

    run(story)


def test_one_slow_pass_makes_nobody_unwelcome(scorer: Scorer) -> None:
    """An idle service takes whoever comes, whatever the last pass took: so it learns that it is fast again."""

    async def story() -> None:
        clock, model = FrozenClock(), Model(scorer)
        async with bench(model, clock=clock) as desk, asyncio.timeout(30):
            await _measured(desk, model, clock, seconds=3600)
            for _ in range(3):
                soon = asyncio.get_running_loop().time() + 5
                assert rounded(await desk.ask(A, until=soon)) == [0.8581]

    run(story)


def test_who_finds_the_queue_full_is_told_when_there_will_be_room(scorer: Scorer) -> None:
    """A pass of two rows takes 1 s; one runs since 0.25, and four wait: room for one in 0.75 s, for three in 1.75."""

    async def story() -> None:
        clock, model = FrozenClock(), Model(scorer)
        async with bench(model, clock=clock, batch=2, queue=4) as desk, asyncio.timeout(30):
            await _measured(desk, model, clock, seconds=1.0)
            model.gate.clear()
            calls = [desk.start(A)]
            await eventually(lambda: len(model.passes) == 2)
            clock.advance(0.25)
            calls.append(desk.start(A, B, C, A))
            await eventually(lambda: desk.batcher.waiting_rows == 4)
            assert [await _refused(desk.ask(B)), await _refused(desk.ask(A, B, C))] == [0.75, 1.75]
            model.gate.set()
            await asyncio.gather(*calls)

    run(story)


def test_who_would_come_too_late_is_told_by_how_much(scorer: Scorer) -> None:
    """A pass takes 1,000 s and one runs since 250: of two passes 1,750 are left, 50 more than this caller has."""

    async def story() -> None:
        clock, model = FrozenClock(), Model(scorer)
        async with bench(model, clock=clock) as desk, asyncio.timeout(30):
            await _measured(desk, model, clock, seconds=1000)
            model.gate.clear()
            call = desk.start(A)
            await eventually(lambda: len(model.passes) == 2)
            clock.advance(250)
            until = asyncio.get_running_loop().time() + 1700
            assert await _refused(desk.ask(B, until=until)) == pytest.approx(50, abs=30)
            model.gate.set()
            await call

    run(story)


def test_before_the_first_pass_nothing_is_known(scorer: Scorer) -> None:
    """Whoever is refused then is told no time, and not a wrong one."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model, queue=1) as desk, asyncio.timeout(30):
            model.gate.clear()
            calls = [desk.start(A)]
            await eventually(lambda: model.passes == [1])
            calls.append(desk.start(B))
            await eventually(lambda: desk.batcher.waiting_rows == 1)
            assert await _refused(desk.ask(C)) is None
            model.gate.set()
            await asyncio.gather(*calls)

    run(story)


async def _refused(call: Awaitable[object]) -> float | None:
    with pytest.raises(Overloaded) as raised:
        await call
    return raised.value.retry_after


async def _measured(desk: Bench, model: Model, clock: FrozenClock, *, seconds: float) -> None:
    """One pass that takes so long by the clock."""
    model.gate.clear()
    call = desk.start(A)
    await eventually(lambda: len(model.passes) == 1)
    clock.advance(seconds)
    model.gate.set()
    await call
