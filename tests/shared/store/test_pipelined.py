"""Commands that share one connection: whose reply is it, and what becomes of the others when it breaks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from redis import Redis
from support.polling import eventually
from support.proxy import Proxy, proxy_to
from support.servers import ValkeyProcess
from support.snapshots import load, snapshot_meta
from support.stores import settings_for

from shared.errors import StoreDown
from shared.layout import Keys, bucket_of, unpack
from shared.snapshot import Absent, Found, Lost, SnapshotMeta
from shared.store.connect import open_async_store, open_store
from shared.store.interfaces import AsyncStore, OnlineScore

SCORES = {f"C{number:04}": float(number) for number in range(400)}
IDS = list(SCORES)


@asynccontextmanager
async def _through_proxy(
    valkey: ValkeyProcess, namespace: str, **changes: object
) -> AsyncIterator[tuple[AsyncStore, Proxy]]:
    async with proxy_to(valkey.port) as proxy:
        settings = settings_for(f"redis://127.0.0.1:{proxy.port}", namespace, **changes)
        async with open_async_store(settings, "churn") as store:
            await store.reader.ping()
            yield store, proxy


def _loaded(valkey: ValkeyProcess, namespace: str) -> SnapshotMeta:
    with open_store(settings_for(valkey.url, namespace), "churn") as store:
        return load(store, snapshot_meta(entities=len(SCORES)), SCORES)


async def _peeked(store: AsyncStore, meta: SnapshotMeta, entity_id: str) -> float | None:
    value = await store.reader.peek(meta, entity_id.encode())
    found = unpack(value, len(meta.columns), meta.fields) if isinstance(value, bytes) else value
    return found.scores[0] if isinstance(found, Found) else None


def test_questions_of_one_turn_share_one_round_trip(valkey: ValkeyProcess, namespace: str) -> None:
    """Of every kind and of whomever: all are sent on one connection before the first reply is read."""
    meta = _loaded(valkey, namespace)

    async def _ask() -> None:
        async with _through_proxy(valkey, namespace) as (store, proxy):
            proxy.gate.clear()
            before = proxy.sent.count(b"HMGET")
            asked = asyncio.gather(
                *(_peeked(store, meta, entity_id) for entity_id in IDS[:100]),
                store.features.read(["a", "b"]),
                store.reader.lookup(meta, IDS[:1]),
            )
            await proxy.until_sent(b"HMGET", before + 101)
            assert proxy.sent.count(b"GET\r\n") - proxy.sent.count(b"HMGET\r\n") == 2
            proxy.gate.set()
            *scores, features, found = await asked
            assert scores == [SCORES[entity_id] for entity_id in IDS[:100]]
            assert features == [None, None]
            assert isinstance(found[0], Found)
            assert proxy.connections == 1

    asyncio.run(_ask())


def test_a_late_reply_is_never_another_s(valkey: ValkeyProcess, namespace: str) -> None:
    """G1, G2: what is not answered in time fails for all that wait, and the reply that comes at last answers nobody."""
    meta = _loaded(valkey, namespace)

    async def _ask() -> None:
        changes = {"read_timeout_ms": 300, "read_retries": 0, "breaker_failures": 10_000}
        async with _through_proxy(valkey, namespace, **changes) as (store, proxy):
            for turn in range(5):
                proxy.gate.clear()
                late = [asyncio.create_task(_peeked(store, meta, entity_id)) for entity_id in IDS[:10]]
                ended = await asyncio.gather(*late, return_exceptions=True)
                assert [type(one) for one in ended] == [StoreDown] * 10
                proxy.gate.set()
                await eventually(partial(_is_right, store, meta, IDS[-1 - turn]))
            assert proxy.connections >= 6
            assert proxy.open <= 2

    asyncio.run(_ask())


async def _is_right(store: AsyncStore, meta: SnapshotMeta, entity_id: str) -> bool:
    """Whether it is answered; with any other answer than its own, the test ends here."""
    try:
        found = await _peeked(store, meta, entity_id)
    except StoreDown:
        return False
    assert found == SCORES[entity_id]
    return True


def test_an_error_in_the_middle_costs_only_its_own(valkey: ValkeyProcess, namespace: str) -> None:
    """G9: an error among the replies stays with who asked for it, and the connection lives."""
    meta = _loaded(valkey, namespace)
    bucket = bucket_of(IDS[0], meta.buckets)
    with Redis(port=valkey.port) as client:
        client.set(Keys(namespace, "churn").bucket(meta.snapshot, bucket), "not a hash")

    async def _ask() -> None:
        async with _through_proxy(valkey, namespace) as (store, proxy):
            found = await asyncio.gather(*(store.reader.peek(meta, entity_id.encode()) for entity_id in IDS))
            for entity_id, one in zip(IDS, found, strict=True):
                assert (one == Lost("corrupt")) == (bucket_of(entity_id, meta.buckets) == bucket)
            assert await store.online.write_back(meta, [OnlineScore(IDS[0], [0.5], 1)]) == [False]
            assert await _peeked(store, meta, "C0007") in {7.0, None}
            assert proxy.connections == 1

    asyncio.run(_ask())


def test_what_is_not_there_is_told_apart(valkey: ValkeyProcess, namespace: str) -> None:
    """Absent from a whole bucket, and a bucket that is gone, are two answers."""
    meta = _loaded(valkey, namespace)

    async def _ask() -> None:
        async with open_async_store(settings_for(valkey.url, namespace), "churn") as store:
            assert await store.reader.peek(meta, b"nobody") == Absent()
            assert await store.reader.peek(snapshot_meta("1-gone"), b"a") == Lost("bucket")

    asyncio.run(_ask())


def test_a_server_that_says_too_much_is_not_listened_to() -> None:
    """More replies than commands: nobody can say whose they are, so the connection is given up."""
    ended = asyncio.Event()

    async def _chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            absent = b"*2\r\n$-1\r\n$1\r\n1\r\n"
            writer.write(absent * 2 if b"HMGET" in data else b"+OK\r\n" * data.count(b"CLIENT"))
        writer.close()
        ended.set()

    async def _ask() -> None:
        server = await asyncio.start_server(_chatter, "127.0.0.1", 0)
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, open_async_store(settings_for(url), "churn") as store:
            assert await store.reader.lookup(snapshot_meta(), ["a"]) == [Absent()]
            await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(_ask())


def test_callers_that_wait_for_a_connection_share_it(valkey: ValkeyProcess, namespace: str) -> None:
    """However many come while there is none, one is opened; one of them that leaves does not take it along."""
    meta = _loaded(valkey, namespace)

    async def _ask() -> None:
        async with proxy_to(valkey.port) as proxy:
            settings = settings_for(f"redis://127.0.0.1:{proxy.port}", namespace)
            async with open_async_store(settings, "churn") as store:
                first, *others = [asyncio.create_task(_peeked(store, meta, entity_id)) for entity_id in IDS[:50]]
                await asyncio.sleep(0)
                first.cancel()
                assert await asyncio.gather(*others) == [SCORES[entity_id] for entity_id in IDS[1:50]]
                assert proxy.connections == 1

    asyncio.run(_ask())
