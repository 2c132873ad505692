"""Contexts whose beginning and end block: entered and left in a thread, so that the event loop answers on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def off_loop(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """The same context for an event loop. What was entered is left, also where the task was cancelled meanwhile."""
    entering = asyncio.ensure_future(asyncio.to_thread(context.__enter__))
    try:
        await _whole(entering)
        yield entering.result()
    finally:
        if entering.done() and entering.exception() is None:
            await _whole(asyncio.ensure_future(asyncio.to_thread(_leave(context))))


async def _whole(work: "asyncio.Future[T]") -> T:
    """Waits to the end of the work. A cancellation is put off until then: a thread cannot be stopped half-way."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return work.result()


def _leave(context: AbstractContextManager[T]) -> Callable[[], object]:
    return lambda: context.__exit__(None, None, None)
