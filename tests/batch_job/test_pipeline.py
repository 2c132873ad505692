"""Three stages at the same time."""

from collections.abc import Iterator
from threading import Event

import pytest

from batch_job.pipeline import flow


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
