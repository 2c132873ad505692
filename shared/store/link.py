"""One call to the store: bounded in time, tried again as often as the settings say, its failure translated."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from redis.exceptions import RedisError

from shared.errors import StoreDown
from shared.settings import RedisSettings
from shared.store.breaker import CircuitBreaker
from shared.store.clients import AsyncClient, Client
from shared.store.failures import is_wrong_type, translate, translated
from shared.store.lookup import Reply

T = TypeVar("T")


class Link:
    """A writer's calls: patient, never repeated, since a writer must know what happened to each."""

    def __init__(self, client: Client, where: str) -> None:
        self.client = client
        self.where = where

    def command(self, *arguments: Any) -> Any:
        """Sends one command and returns its reply."""
        with translated(self.where):
            return self.client.execute_command(*arguments)  # type: ignore[no-untyped-call]

    def pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Sends the commands in one round trip; the first error among the replies is raised after all were read."""
        return self._replies(commands, spare_hashes=False)

    def hashes(self, commands: Sequence[tuple[Any, ...]]) -> list[Reply]:
        """As ``pipeline``, for HMGET: a key that is no hash costs itself, not its neighbours."""
        return self._replies(commands, spare_hashes=True)

    def _replies(self, commands: Sequence[tuple[Any, ...]], *, spare_hashes: bool) -> list[Any]:
        if not commands:
            return []
        with translated(self.where):
            pipeline = self.client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return _checked(pipeline.execute(raise_on_error=False), self.where, spare_hashes=spare_hashes)


class AsyncLink:
    """A request's calls. All share one breaker and the same bounded number of connections.

    The limit in time is set outside of the client as well: whatever it does, the caller has its answer.
    """

    def __init__(self, client: AsyncClient, where: str, settings: RedisSettings, breaker: CircuitBreaker) -> None:
        self.breaker = breaker
        self._client = client
        self._where = where
        self._seconds = settings.read_timeout_ms / 1000
        self._tries = settings.read_retries + 1
        self._slots = asyncio.Semaphore(settings.read_connections)

    async def command(self, *arguments: Any) -> Any:
        """Sends one command and returns its reply. It may be sent again, so it must be safe to repeat."""
        return await self._call(lambda: self._client.execute_command(*arguments))

    async def pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Sends the commands in one round trip; the first error among the replies is raised after all were read."""
        return await self._call(lambda: self._replies(commands, spare_hashes=False))

    async def hashes(self, commands: Sequence[tuple[Any, ...]]) -> list[Reply]:
        """As ``pipeline``, for HMGET: a key that is no hash costs itself, not its neighbours."""
        if len(commands) == 1:
            return [await self._call(lambda: self._hash(commands[0]))]
        return await self._call(lambda: self._replies(commands, spare_hashes=True))

    async def _hash(self, command: tuple[Any, ...]) -> Reply:
        try:
            return cast("Reply", await self._client.execute_command(*command))
        except RedisError as error:
            if is_wrong_type(error):
                return None
            raise

    async def _replies(self, commands: Sequence[tuple[Any, ...]], *, spare_hashes: bool) -> list[Any]:
        if not commands:
            return []
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return _checked(await pipeline.execute(raise_on_error=False), self._where, spare_hashes=spare_hashes)

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        with self.breaker.guard():
            for left in reversed(range(self._tries)):
                try:
                    return await self._once(work)
                except StoreDown:
                    if not left:
                        raise
        raise AssertionError("unreachable")  # the last try returns or raises

    async def _once(self, work: Callable[[], Awaitable[T]]) -> T:
        with translated(self._where):
            async with asyncio.timeout(self._seconds), self._slots:
                return await work()


def _checked(replies: list[Any], where: str, *, spare_hashes: bool) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception) and not (spare_hashes and is_wrong_type(reply)):
            raise translate(reply, where)
    return [None if isinstance(reply, Exception) else reply for reply in replies]
