"""Waiting inside an event loop for what other tasks and threads do: bounded, and the only place that polls there."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable


async def eventually(condition: Callable[[], bool | Awaitable[bool]], timeout: float = 30) -> None:  # noqa: ASYNC109 - a test's bound
    """Returns once the condition holds; TimeoutError if it does not come true in time."""
    async with asyncio.timeout(timeout):
        while True:
            holds = condition()
            if await holds if isawaitable(holds) else holds:
                return
            await asyncio.sleep(0.002)
