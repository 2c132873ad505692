"""Opens a store from the settings, and closes it again. Who opens closes."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from redis.asyncio import RedisCluster

from shared.clock import Clock, MonotonicClock, WallClock
from shared.embedded import embedded_store
from shared.layout import Keys, models_key, rates_key
from shared.off_loop import off_loop
from shared.settings import RedisSettings, Settings
from shared.store.breaker import CircuitBreaker
from shared.store.catalogue import RedisCatalogue
from shared.store.clients import AsyncClient, Client, async_client, sync_client
from shared.store.control import RedisControl
from shared.store.features import RedisFeatureStore, RedisFeatureWriter
from shared.store.interfaces import AsyncStore, Store
from shared.store.leases import RedisLeases
from shared.store.link import AsyncLink, Link
from shared.store.loader import Loader, loader_for
from shared.store.online import RedisOnlineWriter
from shared.store.pipelined import PipelinedSender
from shared.store.reader import RedisReader
from shared.store.sender import PooledSender, Sender
from shared.store.urls import Address, parse
from shared.store.writer import RedisSnapshotWriter

if TYPE_CHECKING:
    from shared.store.rates import RateWindows


@contextmanager
def open_store(settings: Settings, model: str, *, clock: Clock | None = None) -> Iterator[Store]:
    """The store of one model, for the batch job and the commands."""
    keys = Keys(settings.redis.namespace, model)
    with _opened(settings) as link:
        yield sync_store(link.client, keys, where=link.where, clock=clock or WallClock())


@asynccontextmanager
async def open_async_store(settings: Settings, model: str, *, clock: Clock | None = None) -> AsyncIterator[AsyncStore]:
    """The store of one model, for the service. It opens even if no server is there: a store is a cache."""
    keys = Keys(settings.redis.namespace, model)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(off_loop(address_of(settings)))
        client = await stack.enter_async_context(
            async_client(
                address,
                seconds=settings.redis.read_timeout_ms / 1000,
                connections=settings.redis.read_connections,
            )
        )
        sender = await stack.enter_async_context(_sender(client, settings.redis))
        yield _async_store(sender, keys, settings.redis, where=address.where, clock=clock or MonotonicClock())


@asynccontextmanager
async def open_rate_windows(settings: Settings, clock: Clock) -> AsyncIterator["RateWindows"]:
    """Counts for rate limits that all workers share. It opens even if no server is there."""
    from shared.store.rates import RateWindows  # noqa: PLC0415 - its library is loaded where there is such a limit

    seconds = settings.redis.read_timeout_ms / 1000
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(off_loop(address_of(settings)))
        client = await stack.enter_async_context(
            async_client(address, seconds=seconds, connections=settings.redis.read_connections)
        )
        yield RateWindows(
            client,
            prefix=rates_key(settings.redis.namespace),
            where=address.where,
            seconds=seconds,
            connections=settings.redis.read_connections,
            breaker=CircuitBreaker(settings.redis.breaker_failures, settings.redis.breaker_seconds, clock),
        )


def models(settings: Settings) -> list[str]:
    """The models that have snapshots in the store."""
    with _opened(settings) as link:
        return sorted(name.decode() for name in link.command("SMEMBERS", models_key(settings.redis.namespace)))


def sync_store(
    client: Client, keys: Keys, *, where: str, clock: Clock, loader: Callable[[Link], Loader] = loader_for
) -> Store:
    """The parts around a client that somebody else opened; ``loader``: one that its connections take."""
    link = Link(client, where)
    return Store(
        writer=RedisSnapshotWriter(link, loader(link), keys),
        catalogue=RedisCatalogue(link, keys),
        control=RedisControl(link, keys, clock),
        leases=RedisLeases(link, keys),
        features=RedisFeatureWriter(link, keys),
    )


def async_store(client: AsyncClient, keys: Keys, settings: RedisSettings, *, where: str, clock: Clock) -> AsyncStore:
    """The parts around a client that somebody else opened; ``clock`` is the breaker's."""
    return _async_store(_pooled(client, settings), keys, settings, where=where, clock=clock)


@asynccontextmanager
async def _sender(client: AsyncClient, settings: RedisSettings) -> AsyncIterator[Sender]:
    """One connection that all calls share; on a cluster, where each node needs its own, the client's."""
    if isinstance(client, RedisCluster):
        yield _pooled(client, settings)
        return
    sender = PipelinedSender(client.connection_pool, settings.read_timeout_ms / 1000)
    try:
        yield sender
    finally:
        await sender.close()


def _pooled(client: AsyncClient, settings: RedisSettings) -> PooledSender:
    return PooledSender(client, settings.read_timeout_ms / 1000, settings.read_connections)


def _async_store(sender: Sender, keys: Keys, settings: RedisSettings, *, where: str, clock: Clock) -> AsyncStore:
    breaker = CircuitBreaker(settings.breaker_failures, settings.breaker_seconds, clock)
    link = AsyncLink(sender, where, settings, breaker)
    return AsyncStore(
        reader=RedisReader(link, keys),
        online=RedisOnlineWriter(link, keys),
        features=RedisFeatureStore(link, keys),
        breaker=breaker,
    )


@contextmanager
def _opened(settings: Settings) -> Iterator[Link]:
    with ExitStack() as stack:
        address = stack.enter_context(address_of(settings))
        client = stack.enter_context(sync_client(address, seconds=settings.redis.write_timeout_seconds))
        yield Link(client, address.where)


@contextmanager
def address_of(settings: Settings) -> Iterator[Address]:
    if settings.redis.url is not None:
        yield parse(settings.redis.url.get_secret_value())
        return
    with embedded_store(settings.home) as url:
        yield parse(url)
