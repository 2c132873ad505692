"""How commands reach the server and replies come back: on a connection each, or pipelined (``pipelined``)."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from redis.exceptions import ResponseError

from shared.store.clients import AsyncClient

Command: TypeAlias = tuple[Any, ...]


class Asking(Protocol):
    """Who waits for a reply: as much of a future as is needed."""

    def done(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def set_result(self, reply: Any, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class Sender(Protocol):
    """One try, bounded in time. Raises what the client raises."""

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """The replies in order, in one round trip; errors of single commands are among them."""
        ...

    async def send_pair(self, key: bytes, field: bytes, other: bytes) -> Any:
        """The reply to HMGET of two fields, or the error that is its answer."""
        ...

    def send_pair_for(self, key: bytes, field: bytes, other: bytes, asking: Asking) -> bool:
        """As ``send_pair``, for somebody who waits without a task. False: it cannot be sent so just now."""
        ...


class PooledSender:
    """Each call has a connection of the client's for itself: for a cluster, whose client knows which node to ask.

    The limit in time is set outside of the client: whatever it does, the caller has its answer.
    """

    def __init__(self, client: AsyncClient, seconds: float, connections: int) -> None:
        self._client = client
        self._seconds = seconds
        self._slots = asyncio.Semaphore(connections)

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """One command goes out as such: a cluster's client pipelines only by groups of slots."""
        async with asyncio.timeout(self._seconds), self._slots:
            if len(commands) == 1:
                return [await self._one(commands[0])]
            return await self._many(commands) if commands else []

    async def send_pair(self, key: bytes, field: bytes, other: bytes) -> Any:
        """As any other command."""
        [reply] = await self.send([("HMGET", key, field, other)])
        return reply

    def send_pair_for(self, key: bytes, field: bytes, other: bytes, asking: Asking) -> bool:  # noqa: ARG002 - never
        """A connection must be waited for."""
        return False

    async def _one(self, command: Command) -> Any:
        try:
            return await self._client.execute_command(*command)
        except ResponseError as error:
            return error

    async def _many(self, commands: Sequence[Command]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies
