"""The two sides of one store, whatever it is made of."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import fakeredis
from pydantic import SecretStr

from shared.clock import MonotonicClock, WallClock
from shared.layout import Keys
from shared.settings import RedisSettings, Settings
from shared.store.connect import async_store, sync_store
from shared.store.interfaces import AsyncStore, Store
from shared.store.loader import PipelineLoader
from shared.testing.store import MemoryStore

T = TypeVar("T")


@dataclass(frozen=True)
class Backend:
    """One store, open on the side of the batch job; ``opened`` opens the side of the service."""

    store: Store
    opened: Callable[[], AbstractAsyncContextManager[AsyncStore]]

    def ask(self, question: Callable[[AsyncStore], Awaitable[T]]) -> T:
        """Asks something on the service's side, in a loop of its own."""

        async def asked() -> T:
            async with self.opened() as store:
                return await question(store)

        return asyncio.run(asked())


def settings_for(url: str, namespace: str = "t", **changes: object) -> Settings:
    """Settings that lead to the server; generous in time, since a test machine may be busy."""
    given = {"url": SecretStr(url), "namespace": namespace, "read_timeout_ms": 5000, **changes}
    return Settings(redis=RedisSettings.model_validate(given))


def memory_backend() -> Backend:
    memory = MemoryStore("churn")

    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncStore]:
        yield memory.async_store

    return Backend(memory.store, opened)


def _plain(command: object, rest: list[object]) -> tuple[object, ...]:
    """fakeredis cannot read the line in which a script names its flags, and knows no scripts that only read."""
    if command in {"EVAL", "EVAL_RO"}:
        text = str(rest[0])
        return ("EVAL", text.partition("\n")[2] if text.startswith("#!") else text, *rest[1:])
    return (command, *rest)


class _FakeRedis(fakeredis.FakeRedis):
    def execute_command(self, *arguments: object, **options: object) -> object:
        command, *rest = arguments
        return super().execute_command(*_plain(command, rest), **options)


class _FakeAsyncRedis(fakeredis.FakeAsyncRedis):
    async def execute_command(self, *arguments: object, **options: object) -> object:
        command, *rest = arguments
        return await super().execute_command(*_plain(command, rest), **options)


def fake_backend(namespace: str) -> Backend:
    server, keys = fakeredis.FakeServer(), Keys(namespace, "churn")

    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncStore]:
        async with _FakeAsyncRedis(server=server) as client:
            yield async_store(client, keys, RedisSettings(read_timeout_ms=5000), where="fake", clock=MonotonicClock())

    client = _FakeRedis(server=server)  # which has no socket to read from
    return Backend(sync_store(client, keys, where="fake", clock=WallClock(), loader=PipelineLoader), opened)
