"""By when a request is answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.errors import DeadlineExceeded

SETTING = "FORESCORE_SERVICE__DEADLINE_MS"


@asynccontextmanager
async def within(milliseconds: float, spent: float = 0.0, said_by: str = SETTING) -> AsyncIterator[float]:
    """DeadlineExceeded when the block takes longer; what it was waiting for is given up.

    Gives the block the time, by the event loop's clock, at which that will be. ``spent``: seconds that are
    gone already. ``said_by``: whose word it is.
    """
    until = asyncio.get_running_loop().time() + milliseconds / 1000 - spent
    limit = asyncio.timeout_at(until)
    try:
        async with limit:
            yield until
    except TimeoutError:
        if not limit.expired():
            raise
        raise DeadlineExceeded(f"no answer within {milliseconds:g} ms ({said_by})") from None
