"""Three stages at the same time."""

from collections.abc import Iterator
from itertools import count
from threading import Event

import pytest

from batch_job.pipeline import Channel, ahead, aside, flow


def test_everything_passes_in_order() -> None:
    """Each item goes through all stages once, in order."""
    found: list[int] = []
    flow(range(100), lambda item: item * 2, found.append)
    assert found == [item * 2 for item in range(100)]


def test_stages_work_at_the_same_time() -> None:
    """While one item is written the next is made: each stage waits for the other here, and neither for ever."""
    made, written = Event(), Event()

    def produce() -> Iterator[int]:
        yield 1
        assert written.wait(10)
        made.set()
        yield 2

    def consume(item: int) -> None:
        written.set()
        assert made.wait(10)

    flow(produce(), lambda item: item, consume)


def test_little_waits_between_stages() -> None:
    """Memory is bounded: no more is made than fits between the stages."""
    made: list[int] = []
    found: list[int] = []

    def produce() -> Iterator[int]:
        for item in range(50):
            assert item - len(found) <= 8  # two queues of two, and one item in each stage's hands
            made.append(item)
            yield item

    flow(produce(), lambda item: item, found.append)
    assert found == made


def failing(stage: str) -> None:
    def at(name: str, item: int) -> int:
        if name == stage and item == 3:
            raise ValueError(stage)
        return item

    flow((at("read", item) for item in range(1000)), lambda item: at("forward", item), lambda item: _drop(at, item))


def _drop(at: object, item: int) -> None:
    at("write", item)  # type: ignore[operator]


@pytest.mark.parametrize("stage", ["read", "forward", "write"])
def test_a_failure_of_any_stage_stops_all_and_is_raised(stage: str) -> None:
    """No stage is left waiting for another one that has ended."""
    with pytest.raises(ValueError, match=stage):
        failing(stage)


def test_items_that_are_got_ahead_come_in_order() -> None:
    """A thread gets them; whoever takes them sees all, as they were given."""
    with ahead(iter(range(50)), depth=3) as items:
        assert list(items) == list(range(50))


def test_what_getting_an_item_raises_comes_in_its_place() -> None:
    """The items before the failure are taken, then it is raised in the block."""

    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("no")

    taken: list[int] = []
    with pytest.raises(ValueError, match="no"), ahead(failing()) as items:
        taken.extend(items)
    assert taken == [1]


def test_nothing_is_got_any_more_once_the_block_was_left() -> None:
    """An endless source ends with the block, and its thread with it."""
    got: list[int] = []

    def endless() -> Iterator[int]:
        for number in count():
            got.append(number)
            yield number

    with pytest.raises(KeyError), ahead(endless(), depth=2) as items:
        raise KeyError(next(items))
    assert len(got) <= 4


def test_what_is_put_aside_is_consumed_by_a_thread() -> None:
    """All of it, in order, before the block is left, while the block goes on after the end of it."""
    found: list[int] = []
    last = Event()

    def consume(items: Channel[int]) -> None:
        found.extend(items)
        last.set()

    with aside(consume) as items:
        items.fill(range(50))
        assert last.wait(10)
    assert found == list(range(50))


def test_a_consumer_that_fails_is_told_at_the_end_of_the_block() -> None:
    """Nobody who puts something in waits for it."""

    def consume(items: Channel[int]) -> None:
        raise ValueError(next(iter(items)))

    with pytest.raises(ValueError, match="0"), aside(consume, depth=1) as items:
        items.fill(range(50))


def test_a_block_that_fails_stops_its_consumer() -> None:
    """The thread does not wait for what will never come, and its work is not taken for done."""
    done: list[int] = []

    def consume(items: Channel[int]) -> None:
        done.extend(items)
        items.require_going()
        done.append(-1)

    with pytest.raises(KeyError), aside(consume):
        raise KeyError
    assert done == []
