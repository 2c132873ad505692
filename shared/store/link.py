"""One call to the store: bounded in time, tried again as often as the settings say, its failure translated."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from redis.exceptions import RedisClusterException, RedisError

from shared.errors import StoreDown
from shared.settings import RedisSettings
from shared.store.breaker import CircuitBreaker
from shared.store.clients import Client
from shared.store.failures import is_wrong_type, translate, translated
from shared.store.lookup import Reply
from shared.store.sender import Asking, Command, Sender

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
    """A request's calls. All share one breaker and one sender, and are tried again as the settings say."""

    def __init__(self, sender: Sender, where: str, settings: RedisSettings, breaker: CircuitBreaker) -> None:
        self.breaker = breaker
        self._sender = sender
        self._where = where
        self._tries = settings.read_retries + 1

    async def command(self, *arguments: Any) -> Any:
        """Sends one command and returns its reply. It may be sent again, so it must be safe to repeat."""
        return (await self.pipeline([arguments]))[0]

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Sends the commands in one round trip; the first error among the replies is raised after all were read."""
        return await self._call(lambda: self._replies(commands, spare_hashes=False))

    async def hashes(self, commands: Sequence[Command]) -> list[Reply]:
        """As ``pipeline``, for HMGET: a key that is no hash costs itself, not its neighbours."""
        return await self._call(lambda: self._replies(commands, spare_hashes=True))

    async def pair(self, key: bytes, field: bytes, other: bytes) -> Reply:
        """Two fields of one hash, in the least time; None where the key is no hash."""
        return await self._call(lambda: self._pair(key, field, other))

    def pair_for(self, key: bytes, field: bytes, other: bytes, asking: Asking) -> bool:
        """As ``pair``, once, for somebody who takes the reply as it is. False where all is not well: not asked then."""
        return self.breaker.is_calm and self._sender.send_pair_for(key, field, other, asking)

    async def _replies(self, commands: Sequence[Command], *, spare_hashes: bool) -> list[Any]:
        return _checked(await self._sender.send(commands), self._where, spare_hashes=spare_hashes)

    async def _pair(self, key: bytes, field: bytes, other: bytes) -> Reply:
        reply = await self._sender.send_pair(key, field, other)
        if isinstance(reply, Exception):
            [reply] = _checked([reply], self._where, spare_hashes=True)
        return cast("Reply", reply)

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        with self.breaker.guard():
            for left in reversed(range(self._tries)):
                try:
                    return await work()
                except (RedisError, RedisClusterException, OSError, StoreDown) as error:
                    ours = error if isinstance(error, StoreDown) else translate(error, self._where)
                    if not left or not isinstance(ours, StoreDown):
                        raise ours from None
        raise AssertionError("unreachable")  # the last try returns or raises


def _checked(replies: list[Any], where: str, *, spare_hashes: bool) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception) and not (spare_hashes and is_wrong_type(reply)):
            raise translate(reply, where)
    return [None if isinstance(reply, Exception) else reply for reply in replies]
