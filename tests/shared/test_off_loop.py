import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.polling import eventually

from shared.off_loop import off_loop


class Door:
    """A context whose beginning takes as long as it is told to."""

    def __init__(self) -> None:
        self.entering, self.may_enter = threading.Event(), threading.Event()
        self.threads: list[int] = []
        self.left = False

    @contextmanager
    def opened(self) -> Iterator[str]:
        self.entering.set()
        assert self.may_enter.wait(30)
        self.threads.append(threading.get_ident())
        yield "open"
        self.threads.append(threading.get_ident())
        self.left = True


async def walk_through(door: Door) -> str:
    async with off_loop(door.opened()) as what:
        return what


def test_the_loop_goes_on_while_it_is_entered() -> None:
    """Neither the beginning nor the end of the context runs on the thread of the event loop."""

    async def walked() -> None:
        door = Door()
        task = asyncio.create_task(walk_through(door))
        await eventually(door.entering.is_set)
        door.may_enter.set()
        assert await task == "open"
        assert door.left
        assert threading.get_ident() not in door.threads

    asyncio.run(walked())


def test_what_was_entered_is_left() -> None:
    """A task that is cancelled while it enters has left when it ends: a server that it started is not left behind."""

    async def walked() -> None:
        door = Door()
        task = asyncio.create_task(walk_through(door))
        await eventually(door.entering.is_set)
        task.cancel()
        await asyncio.wait({task}, timeout=0.01)
        assert not task.done()
        door.may_enter.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert door.left

    asyncio.run(walked())


def test_what_cannot_be_entered_is_not_left() -> None:
    """An error at the beginning is the caller's to hear."""

    @contextmanager
    def shut() -> Iterator[None]:
        raise ValueError("shut")
        yield

    async def walked() -> None:
        async with off_loop(shut()):
            pass

    with pytest.raises(ValueError, match="shut"):
        asyncio.run(walked())
