"""Counts of rows that all workers share, in the store: the scripts are those of the library ``limits``.

Its storage is put on a client of ours, so that a store behind sentinels or a cluster is reached as it is elsewhere.
What it keeps expires by itself; both keys of one count share a hash tag.
"""

import asyncio

from limits.aio.storage import RedisStorage

from shared.store.breaker import CircuitBreaker
from shared.store.clients import AsyncClient
from shared.store.failures import translated


class _Storage(RedisStorage):
    """The library's, on a client that somebody else opens and closes."""

    def __init__(self, client: AsyncClient, prefix: str) -> None:
        self._client = client
        super().__init__("redis://", implementation="redispy", key_prefix=prefix)

    def configure_bridge(self) -> None:
        self.bridge.connection_getter = lambda _: self._client  # type: ignore[attr-defined]


class RateWindows:
    """Each call is bounded in time, and none is made while the breaker says that the store does not answer.

    So many are made at once as there are connections, and the others wait for their turn: a crowd is no outage, in
    which nobody would be counted.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        prefix: str,
        where: str,
        seconds: float,
        connections: int,
        breaker: CircuitBreaker,
    ) -> None:
        self._storage = _Storage(client, prefix)
        self._where = where
        self._seconds = seconds
        self._turns = asyncio.Semaphore(connections)
        self._breaker = breaker

    async def acquire(self, key: str, limit: int, seconds: int, rows: int) -> bool:
        """Takes the rows, if they are within the limit. StoreError where the store cannot tell."""
        with self._breaker.guard(), translated(self._where):
            async with asyncio.timeout(self._seconds), self._turns:
                return await self._storage.acquire_sliding_window_entry(key, limit, seconds, rows)

    async def window(self, key: str, seconds: int) -> tuple[int, float, int, float]:
        """Rows of the previous window and its seconds to live, and the same of the current one."""
        with self._breaker.guard(), translated(self._where):
            async with asyncio.timeout(self._seconds), self._turns:
                return await self._storage.get_sliding_window(key, seconds)
