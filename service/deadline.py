"""By when a request is answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.errors import DeadlineExceeded


@asynccontextmanager
async def within(milliseconds: int, spent: float = 0.0) -> AsyncIterator[float]:
    """DeadlineExceeded when the block takes longer; what it was waiting for is given up.

    Gives the block the time, by the event loop's clock, at which that will be. ``spent``: seconds that are
    gone already.
    """
    until = asyncio.get_running_loop().time() + milliseconds / 1000 - spent
    limit = asyncio.timeout_at(until)
    try:
        async with limit:
            yield until
    except TimeoutError:
        if not limit.expired():
            raise
        raise DeadlineExceeded(f"no answer within {milliseconds} ms (FORESCORE_SERVICE__DEADLINE_MS)") from None
