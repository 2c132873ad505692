"""Every way in which a server fails becomes one of our errors, within the time that was set."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from support.servers import ValkeyProcess, dead_port, hung_server, start_valkey, wait_until
from support.snapshots import load, promote, publish_batch, rollback, snapshot_meta
from support.stores import settings_for

from shared.errors import StoreDown, StoreError, StoreRefused
from shared.settings import Settings
from shared.snapshot import Found, Lease, Lookup, Lost, SnapshotState
from shared.store.connect import models, open_async_store, open_store
from shared.store.inspection import store_findings
from shared.store.interfaces import AsyncStore, OnlineScore, Store

META = snapshot_meta()
LEASE = Lease(token="token", holder="h", epoch=1)  # noqa: S106 - of a lease, and it opens nothing
SECONDS = 2.0
"""Well above two tries of 80 ms, and far below what the client would wait by itself."""

ASYNC_CALLS: dict[str, Callable[[AsyncStore], Awaitable[object]]] = {
    "active": lambda store: store.reader.active(),
    "lookup": lambda store: store.reader.lookup(META, ["a"]),
    "bulk": lambda store: store.reader.lookup(snapshot_meta(entities=500), [f"C{number}" for number in range(500)]),
    "snapshots": lambda store: store.reader.snapshots(),
    "ping": lambda store: store.reader.ping(),
    "write_back": lambda store: store.online.write_back(META, [OnlineScore("a", [0.5], 1)]),
    "features.read": lambda store: store.features.read(["a", "b"]),
    "features.write": lambda store: store.features.write("a", b"{}", 60),
}
CALLS: dict[str, Callable[[Store], object]] = {
    "begin": lambda store: store.writer.begin(META),
    "fill": lambda store: store.writer.fill(META, [publish_batch(META, {"a": 1.0})]),
    "count": lambda store: store.writer.count(META),
    "read": lambda store: store.writer.read(META, ["a"]),
    "read_buckets": lambda store: store.writer.read_buckets(META, range(1)),
    "replace": lambda store: store.writer.replace(META, publish_batch(META, {"a": 1.0})),
    "amend": lambda store: store.control.amend(META, LEASE),
    "claim": lambda store: store.catalogue.claim("1", "digest"),
    "active": lambda store: store.catalogue.active(),
    "snapshots": lambda store: store.catalogue.snapshots(),
    "history": lambda store: store.catalogue.history(),
    "promote": lambda store: store.control.promote("1-A", LEASE, by="test"),
    "rollback": lambda store: store.control.rollback(LEASE, by="test"),
    "mark": lambda store: store.control.mark("1-A", SnapshotState.READY),
    "update": lambda store: store.control.update(META),
    "retire": lambda store: store.control.retire("1-A"),
    "acquire": lambda store: store.leases.acquire("test", 1),
    "renew": lambda store: store.leases.renew(LEASE),
    "release": lambda store: store.leases.release(LEASE),
}


@contextmanager
def _port(kind: str) -> Iterator[int]:
    if kind == "dead":
        yield dead_port()
    else:
        with hung_server() as port:
            yield port


def _ask(settings: Settings, call: Callable[[AsyncStore], Awaitable[object]]) -> object:
    async def _asked() -> object:
        async with open_async_store(settings, "churn") as store:
            return await call(store)

    return asyncio.run(_asked())


@pytest.mark.parametrize("kind", ["dead", "hung"])
@pytest.mark.parametrize("call", ASYNC_CALLS)
def test_a_request_learns_in_time_that_the_store_is_down(kind: str, call: str) -> None:
    """G2, G9: each call of the service's side ends as StoreDown, with the settings as they are by default."""
    with _port(kind) as port:
        started = time.monotonic()
        with pytest.raises(StoreDown, match=f"127.0.0.1:{port}"):
            _ask(settings_for(f"redis://127.0.0.1:{port}", read_timeout_ms=80), ASYNC_CALLS[call])
        assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize("kind", ["dead", "hung"])
@pytest.mark.parametrize("call", CALLS)
def test_a_writer_learns_that_the_store_is_down(kind: str, call: str) -> None:
    """Each call of the batch job's side ends as StoreDown, once its patience is over."""
    with _port(kind) as port:
        settings = settings_for(f"redis://127.0.0.1:{port}", write_timeout_seconds=0.05)
        with open_store(settings, "churn") as store, pytest.raises(StoreDown, match="FORESCORE_REDIS__URL"):
            CALLS[call](store)


@pytest.mark.parametrize("kind", ["dead", "hung"])
@pytest.mark.parametrize("scheme", ["redis+cluster", "redis+sentinel"])
def test_clusters_and_sentinels_fail_the_same_way(kind: str, scheme: str) -> None:
    """Whatever the address, an outage is StoreDown on both sides."""
    with _port(kind) as port:
        path = "/main" if scheme == "redis+sentinel" else ""
        url = f"{scheme}://127.0.0.1:{port}{path}"
        settings = settings_for(url, write_timeout_seconds=0.05, read_timeout_ms=80)
        with pytest.raises(StoreDown), open_store(settings, "churn") as store:
            store.catalogue.active()
        with pytest.raises(StoreDown):
            _ask(settings, lambda store: store.reader.active())


@pytest.mark.parametrize("question", [models, store_findings])
def test_questions_of_commands_fail_the_same_way(question: Callable[[Settings], object]) -> None:
    """A command that asks before it knows its model gets StoreDown too."""
    with pytest.raises(StoreDown):
        question(settings_for(f"redis://127.0.0.1:{dead_port()}"))


def test_a_message_never_holds_the_password() -> None:
    """L5: the address is named without user and password."""
    with pytest.raises(StoreDown) as caught:
        _ask(settings_for(f"redis://user:sesame@127.0.0.1:{dead_port()}"), ASYNC_CALLS["ping"])
    assert "sesame" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_paused_server_is_down_and_comes_back(tmp_path: Path) -> None:
    """G2: a server that hangs in the middle of its work costs one deadline; when it goes on, so do we."""

    async def _pause(server: ValkeyProcess) -> None:
        async with open_async_store(
            settings_for(server.url, read_timeout_ms=80, breaker_failures=99), "churn"
        ) as store:
            await _until_up(store)
            server.pause()
            started = time.monotonic()
            for call in ASYNC_CALLS.values():
                with pytest.raises(StoreDown):
                    await call(store)
            assert time.monotonic() - started < SECONDS * len(ASYNC_CALLS)
            server.resume()
            await _until_up(store)

    with start_valkey(tmp_path) as server:
        asyncio.run(_pause(server))


def test_an_empty_restart_is_lost_and_loads_again(tmp_path: Path) -> None:
    """G6: after a restart without data, the same connections say so, and serve again once it is published again."""
    with start_valkey(tmp_path) as server, open_store(settings_for(server.url), "churn") as store:

        async def _restart() -> list[list[Lookup]]:
            async with open_async_store(settings_for(server.url), "churn") as reading:
                load(store, META, {"a": 1.0})
                before = await reading.reader.lookup(META, ["a"])
                server.restart()
                await _until_up(reading)
                assert await reading.reader.active() is None
                empty = await reading.reader.lookup(META, ["a"])
                load(store, META, {"a": 1.0})
                return [before, empty, await reading.reader.lookup(META, ["a"])]

        before, empty, after = asyncio.run(_restart())
        assert empty == [Lost("bucket")]
        assert before == after
        assert isinstance(before[0], Found)


def test_a_killed_server_does_not_break_the_writer_for_good(tmp_path: Path) -> None:
    """The writer's next call after an outage opens a new connection."""
    with start_valkey(tmp_path) as server, open_store(settings_for(server.url), "churn") as store:
        load(store, META, {"a": 1.0})
        server.kill()
        with pytest.raises(StoreDown):
            store.writer.fill(META, [publish_batch(META, {"a": 1.0})])
        assert server.start()
        load(store, META, {"a": 1.0})
        assert store.writer.count(META) == 1


@pytest.mark.parametrize("call", ASYNC_CALLS)
def test_a_missing_password_is_refused(locked: ValkeyProcess, call: str) -> None:
    """G9: NOAUTH is a refusal with its name, and no outage."""
    with pytest.raises(StoreRefused, match="NOAUTH"):
        _ask(settings_for(locked.url), ASYNC_CALLS[call])


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_password_is_refused_to_writers(locked: ValkeyProcess, call: str) -> None:
    """G9: the same on the batch job's side."""
    with open_store(settings_for(locked.url), "churn") as store, pytest.raises(StoreRefused, match="NOAUTH"):
        CALLS[call](store)


def test_a_wrong_password_is_refused_and_the_right_one_works(locked: ValkeyProcess) -> None:
    """The refusal holds neither of them."""
    with pytest.raises(StoreRefused, match="NOAUTH") as caught:
        _ask(settings_for(locked.url.replace("//", "//:wrong@")), ASYNC_CALLS["ping"])
    assert "wrong@" not in str(caught.value)
    _ask(settings_for(locked.url.replace("//", "//:sesame@")), ASYNC_CALLS["ping"])


@pytest.mark.parametrize("call", ["write_back", "features.write"])
def test_a_replica_refuses_what_the_service_writes(replica: ValkeyProcess, call: str) -> None:
    """G9: READONLY is a refusal with its name; reading goes on."""
    settings = settings_for(replica.url)
    with pytest.raises(StoreRefused, match="READONLY"):
        _ask(settings, ASYNC_CALLS[call])
    assert _ask(settings, ASYNC_CALLS["lookup"]) == [Found(scores=(1.0,), scored_at=META.scored_at, online=False)]


@pytest.mark.parametrize("call", ["begin", "fill", "claim", "acquire"])
def test_a_replica_refuses_a_writer(replica: ValkeyProcess, call: str) -> None:
    """G9: READONLY tells where to write instead."""
    with open_store(settings_for(replica.url), "churn") as store, pytest.raises(StoreRefused, match="READONLY"):
        CALLS[call](store)


def test_a_store_that_fills_up_keeps_serving_the_old_snapshot(tmp_path: Path) -> None:
    """F1: OOM in the middle of a load is a refusal with its name; pointer and scores are read as before."""
    with start_valkey(tmp_path, "--maxmemory", "6mb", "--maxmemory-policy", "noeviction") as server:
        settings = settings_for(server.url)
        with open_store(settings, "churn") as store:
            load(store, META, {"a": 1.0})
            promote(store, META.snapshot)
            large = snapshot_meta("1-B", entities=200_000)
            with pytest.raises(StoreRefused, match="OOM"):
                load(store, large, {f"customer-{number:08}": 0.5 for number in range(200_000)})
            assert store.writer.read(META, ["a"]) == [Found(scores=(1.0,), scored_at=META.scored_at, online=False)]
            assert isinstance(_ask(settings, ASYNC_CALLS["lookup"]), list)
            active = store.catalogue.active()
            assert active is not None
            assert active.meta == META


def test_a_full_store_can_be_led_back_and_emptied(tmp_path: Path) -> None:
    """F1: on a store that takes no more, the pointer still moves and a snapshot can be removed."""
    with start_valkey(tmp_path) as server, open_store(settings_for(server.url), "churn") as store:
        for snapshot in ("1-A", "1-B"):
            load(store, snapshot_meta(snapshot), {"a": 1.0})
            promote(store, snapshot)
        with Redis(port=server.port) as client:
            client.config_set("maxmemory", "1")
        with pytest.raises(StoreRefused, match="OOM"):
            store.writer.begin(snapshot_meta("1-C"))
        assert rollback(store).snapshot == "1-A"
        assert store.control.retire("1-B") == 1


def test_a_refused_write_leaves_a_clean_connection(valkey: ValkeyProcess, namespace: str) -> None:
    """One refused reply among many: it is named, and the next call gets its own replies."""
    with open_store(settings_for(valkey.url, namespace), "churn") as store, Redis(port=valkey.port) as client:
        meta = snapshot_meta(entities=5000)
        store.writer.begin(meta)
        client.set(f"{namespace}:churn:s:{meta.snapshot}:3", "not a hash")
        scores = {f"C{number}": 0.5 for number in range(5000)}
        with pytest.raises(StoreRefused, match="WRONGTYPE"):
            store.writer.fill(meta, [publish_batch(meta, scores)])
        client.delete(f"{namespace}:churn:s:{meta.snapshot}:3")
        store.writer.fill(meta, [publish_batch(meta, scores)])
        assert store.writer.count(meta) == 5000


def test_a_store_that_loads_its_data_is_down_until_it_has(tmp_path: Path) -> None:
    """G9: LOADING is an outage that passes by itself."""
    with start_valkey(tmp_path) as server, Redis(port=server.port) as client:
        client.mset({str(number): number for number in range(20_000)})
        client.save()
    slow = ("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
    with start_valkey(tmp_path, *slow) as server:
        for call in ("ping", "lookup", "bulk", "write_back", "features.read"):
            with pytest.raises(StoreDown, match="still loading"):
                _ask(settings_for(server.url), ASYNC_CALLS[call])
        with open_store(settings_for(server.url), "churn") as store, pytest.raises(StoreDown, match="still loading"):
            store.writer.fill(META, [publish_batch(META, {"a": 1.0})])


def test_the_breaker_spares_a_dead_store() -> None:
    """After some failures in a row no call of any kind waits for the store any more."""

    async def _fail(store: AsyncStore) -> None:
        for _ in range(3):
            with pytest.raises(StoreDown, match="did not answer in time"):
                await store.reader.ping()
        for call in ASYNC_CALLS.values():
            with pytest.raises(StoreDown, match="several times in a row"):
                await call(store)

    with hung_server() as port:
        url = f"redis://127.0.0.1:{port}"
        _ask(settings_for(url, read_timeout_ms=50, read_retries=0, breaker_failures=3, breaker_seconds=60), _fail)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with start_valkey(tmp_path_factory.mktemp("locked"), "--requirepass", "sesame") as server:
        yield server


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """A replica of a primary that is gone, with the data that it had."""
    with start_valkey(tmp_path_factory.mktemp("replica")) as server:
        with open_store(settings_for(server.url), "churn") as store, Redis(port=server.port) as client:
            load(store, META, {"a": 1.0})
            client.replicaof("127.0.0.1", dead_port())
        yield server


async def _until_up(store: AsyncStore) -> None:
    """Asks until the store answers."""
    loop = asyncio.get_running_loop()

    def _answers() -> bool:
        try:
            asyncio.run_coroutine_threadsafe(store.reader.ping(), loop).result(5)
        except StoreError:
            return False
        return True

    await asyncio.to_thread(wait_until, _answers)
