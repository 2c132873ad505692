"""The Redis client for an address: opened here, closed here. None repeats a command by itself.

The client's own defaults would hold a call for up to a minute on a server that hangs, so timeouts and retries are
ours; RESP2 because its replies are the same from every server.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

from redis import Redis
from redis import asyncio as aio
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.connection import parse_url as parse_async_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import ConnectionPool, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from shared.store.failures import translated
from shared.store.urls import Address, Kind

Client: TypeAlias = Redis | RedisCluster
AsyncClient: TypeAlias = aio.Redis | aio.RedisCluster


@contextmanager
def sync_client(address: Address, *, seconds: float) -> Iterator[Client]:
    """For writers and commands: so many ``seconds`` for each reply."""
    with translated(address.where):  # a cluster's client asks for its slots at once
        client, sentinels = _sync(address, {**_wire(seconds), "retry": Retry(NoBackoff(), 0)})
    try:
        yield client
    finally:
        for each in (client, *sentinels):
            each.close()


@asynccontextmanager
async def async_client(address: Address, *, seconds: float, connections: int) -> AsyncIterator[AsyncClient]:
    """For requests: so many ``seconds`` to connect, and a bounded number of connections.

    A call has no limit of the client's own: ``link.AsyncLink`` sets one around it. The client's goes through
    ``asyncio.wait_for``, which on Python 3.11 can lose a cancellation (https://github.com/python/cpython/issues/86296).
    """
    wire = {**_wire(seconds), "socket_timeout": None, "retry": AsyncRetry(NoBackoff(), 0)}
    client, sentinels = _async(address, wire, connections)
    try:
        yield client
    finally:
        for each in (client, *sentinels):
            await each.aclose()


def _sync(address: Address, ours: dict[str, Any]) -> tuple[Client, list[Redis]]:
    options = {**address.options, **ours}
    if address.kind is Kind.CLUSTER:
        nodes = [ClusterNode(host, port) for host, port in address.hosts]  # type: ignore[no-untyped-call]
        return RedisCluster(startup_nodes=nodes, **options), []
    if address.kind is Kind.SENTINEL:
        manager = Sentinel(address.hosts, sentinel_kwargs={**address.sentinel_options, **ours})  # type: ignore[no-untyped-call]
        return manager.master_for(address.service, **options), manager.sentinels  # type: ignore[no-untyped-call]
    plain = {**parse_url(address.url), **ours}  # type: ignore[no-untyped-call]
    return Redis.from_pool(ConnectionPool(**plain)), []


def _async(address: Address, ours: dict[str, Any], connections: int) -> tuple[AsyncClient, list[aio.Redis]]:
    options = {**address.options, **ours, "max_connections": connections}
    if address.kind is Kind.CLUSTER:
        nodes = [AsyncClusterNode(host, port) for host, port in address.hosts]
        return aio.RedisCluster(startup_nodes=nodes, **options), []
    if address.kind is Kind.SENTINEL:
        manager = aio.Sentinel(address.hosts, sentinel_kwargs={**address.sentinel_options, **ours})  # type: ignore[no-untyped-call]
        return manager.master_for(address.service, **options), manager.sentinels
    plain: dict[str, Any] = {**parse_async_url(address.url), **ours, "max_connections": connections}
    return aio.Redis.from_pool(aio.ConnectionPool(**plain)), []


def _wire(seconds: float) -> dict[str, Any]:
    return {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "protocol": 2,
        "decode_responses": False,
    }
