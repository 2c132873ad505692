"""The reader on its connections: whose reply is it, how many round trips, how long, how many connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis import Redis
from support.proxy import Proxy, proxy_to
from support.servers import ValkeyProcess
from support.snapshots import load, snapshot_meta
from support.stores import settings_for

from shared.errors import StoreDown
from shared.layout import Keys, bucket_of
from shared.snapshot import Found, Lookup, Lost, SnapshotMeta
from shared.store.connect import open_async_store, open_store
from shared.store.interfaces import AsyncStore

SCORES = {f"C{number:04}": float(number) for number in range(400)}
IDS = list(SCORES)
CANCELLED = 200


@asynccontextmanager
async def _through_proxy(
    valkey: ValkeyProcess, namespace: str, **changes: object
) -> AsyncIterator[tuple[AsyncStore, Proxy]]:
    async with proxy_to(valkey.port) as proxy:
        settings = settings_for(f"redis://127.0.0.1:{proxy.port}", namespace, **changes)
        async with open_async_store(settings, "churn") as store:
            yield store, proxy


def _loaded(valkey: ValkeyProcess, namespace: str) -> SnapshotMeta:
    with open_store(settings_for(valkey.url, namespace), "churn") as store:
        return load(store, snapshot_meta(entities=len(SCORES)), SCORES)


async def _assert_answers(store: AsyncStore, meta: SnapshotMeta, entity_id: str) -> None:
    [found] = await store.reader.lookup(meta, [entity_id])
    assert isinstance(found, Found)
    assert found.scores == (SCORES[entity_id],)


def test_a_call_cancelled_in_flight_leaves_no_reply_behind(valkey: ValkeyProcess, namespace: str) -> None:
    """G1: the reply of a cancelled look-up never answers the next one; 200 times, each with the reply on its way."""
    meta = _loaded(valkey, namespace)

    async def _cancel_and_ask() -> None:
        async with _through_proxy(valkey, namespace) as (store, proxy):
            await store.reader.ping()
            for turn in range(CANCELLED):
                proxy.gate.clear()
                doomed = asyncio.create_task(store.reader.lookup(meta, [IDS[turn]]))
                await proxy.until_sent(b"HMGET", 2 * turn + 1)
                doomed.cancel()
                proxy.gate.set()
                await asyncio.wait([doomed])
                assert doomed.cancelled()
                await _assert_answers(store, meta, IDS[-1 - turn])

    asyncio.run(_cancel_and_ask())


def test_a_call_cancelled_anywhere_harms_nobody(valkey: ValkeyProcess, namespace: str) -> None:
    """G1, G5: cancelled at each of its steps, a look-up spoils no connection and keeps no place in the pool."""
    meta = _loaded(valkey, namespace)

    async def _cancel_everywhere() -> None:
        settings = settings_for(valkey.url, namespace, read_connections=2)
        async with open_async_store(settings, "churn") as store:
            for turn in range(CANCELLED):
                doomed = asyncio.create_task(store.reader.lookup(meta, IDS[turn : turn + 1 + turn % 3]))
                for _ in range(turn % 25):
                    await asyncio.sleep(0)
                doomed.cancel()
                await asyncio.wait([doomed])
                await _assert_answers(store, meta, IDS[-1 - turn])
            await asyncio.gather(*(_assert_answers(store, meta, entity_id) for entity_id in IDS[:100]))

    asyncio.run(_cancel_everywhere())


def test_many_ids_cost_one_round_trip(valkey: ValkeyProcess, namespace: str) -> None:
    """E6: all commands of a look-up are sent before the first reply is read, one for each bucket that is touched."""
    meta = _loaded(valkey, namespace)

    async def _ask_with_replies_held() -> None:
        async with _through_proxy(valkey, namespace) as (store, proxy):
            await store.reader.ping()
            proxy.gate.clear()
            asked = asyncio.create_task(store.reader.lookup(meta, IDS))
            await proxy.until_sent(b"HMGET", meta.buckets)
            proxy.gate.set()
            assert [found.scores[0] for found in await asked if isinstance(found, Found)] == list(SCORES.values())
            assert proxy.sent.count(b"HMGET") == meta.buckets

    asyncio.run(_ask_with_replies_held())


def test_the_pointer_costs_one_round_trip(valkey: ValkeyProcess, namespace: str) -> None:
    """The pointer and its metadata come together, so that they always belong together."""

    async def _ask() -> None:
        async with _through_proxy(valkey, namespace) as (store, proxy):
            await store.reader.ping()
            before = len(proxy.sent)
            assert await store.reader.active() is None
            assert proxy.sent[before:].startswith(b"*5\r\n$7\r\nEVAL_RO\r\n")
            assert proxy.sent[before:].count(b"EVAL") == 1

    asyncio.run(_ask())


def test_more_calls_than_connections_take_turns(valkey: ValkeyProcess, namespace: str) -> None:
    """A burst waits for a connection, within its time, instead of failing; no more are opened than the setting says."""
    meta = _loaded(valkey, namespace)

    async def _burst() -> int:
        async with _through_proxy(valkey, namespace, read_connections=3) as (store, proxy):
            await asyncio.gather(*(_assert_answers(store, meta, entity_id) for entity_id in IDS[:200]))
            return proxy.connections

    assert asyncio.run(_burst()) <= 3


def test_twenty_failovers_later_the_pool_is_as_large(valkey: ValkeyProcess, namespace: str) -> None:
    """G5: connections that the server closed, idle or busy, give their places back."""
    meta = _loaded(valkey, namespace)

    async def _fail_over() -> None:
        async with _through_proxy(valkey, namespace, read_connections=4, breaker_failures=10_000) as (store, proxy):
            for _ in range(20):
                await asyncio.gather(*(_assert_answers(store, meta, entity_id) for entity_id in IDS[:4]))
                proxy.gate.clear()
                busy = [asyncio.create_task(store.reader.lookup(meta, [entity_id])) for entity_id in IDS[:2]]
                await proxy.until_sent(b"HMGET", proxy.sent.count(b"HMGET") + 1)
                await proxy.drop()
                proxy.gate.set()
                await asyncio.gather(*busy, return_exceptions=True)
            await asyncio.gather(*(_assert_answers(store, meta, entity_id) for entity_id in IDS))
            assert proxy.open <= 4

    asyncio.run(_fail_over())


def test_a_wrong_kind_of_key_costs_only_its_own_entities(valkey: ValkeyProcess, namespace: str) -> None:
    """G9: a key that is no bucket of ours is lost for its entities, and their neighbours are found."""
    meta = _loaded(valkey, namespace)
    bucket = bucket_of(IDS[0], meta.buckets)
    with Redis(port=valkey.port) as client:
        client.set(Keys(namespace, "churn").bucket(meta.snapshot, bucket), "not a hash")

    async def _ask(ids: list[str]) -> list[Lookup]:
        async with open_async_store(settings_for(valkey.url, namespace), "churn") as store:
            return await store.reader.lookup(meta, ids)

    assert asyncio.run(_ask(IDS[:1])) == [Lost("corrupt")]
    for entity_id, found in zip(IDS, asyncio.run(_ask(IDS)), strict=True):
        assert isinstance(found, Lost) == (bucket_of(entity_id, meta.buckets) == bucket)


def test_foreign_bytes_cost_only_their_own_entity(valkey: ValkeyProcess, namespace: str) -> None:
    """G9: a value that does not unpack is lost, and the others of its bucket are found."""
    meta = _loaded(valkey, namespace)
    bucket = bucket_of(IDS[0], meta.buckets)
    with Redis(port=valkey.port) as client:
        client.hset(Keys(namespace, "churn").bucket(meta.snapshot, bucket), IDS[0], "0.5")

    async def _ask() -> list[Lookup]:
        async with open_async_store(settings_for(valkey.url, namespace), "churn") as store:
            return await store.reader.lookup(meta, IDS)

    found = asyncio.run(_ask())
    assert found[0] == Lost("corrupt")
    assert all(isinstance(answer, Found) for answer in found[1:])


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_call_is_tried_as_often_as_the_setting_says(retries: int) -> None:
    """The client's own ten retries are off: a server that closes every connection sees exactly ours."""
    connections = 0

    async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async def _ask() -> None:
        server = await asyncio.start_server(_hang_up, "127.0.0.1", 0)
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, open_async_store(settings_for(url, read_retries=retries), "churn") as store:
            with pytest.raises(StoreDown):
                await store.reader.ping()

    asyncio.run(_ask())
    assert connections == retries + 1
