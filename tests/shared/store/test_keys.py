"""What lies in a real server, and which commands it saw."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis
from support.servers import ValkeyProcess, start_valkey
from support.snapshots import load, promote, publish_batch, snapshot_meta
from support.stores import settings_for

from shared.errors import SnapshotNotReady, StoreCorrupt
from shared.layout import Keys
from shared.settings import Settings
from shared.snapshot import Lost, SnapshotState
from shared.store.connect import models, open_store
from shared.store.interfaces import Store

SCORES = {f"C{number:05}": 0.5 for number in range(2000)}
KEYS = Keys("t", "churn")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyProcess]:
    with start_valkey(tmp_path) as server:
        yield server


@pytest.fixture
def settings(server: ValkeyProcess) -> Settings:
    return settings_for(server.url)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings, "churn") as store:
        yield store


@pytest.fixture
def client(server: ValkeyProcess) -> Iterator[Redis]:
    with Redis(port=server.port) as client:
        yield client


def _nightly(store: Store, snapshot: str) -> None:
    load(store, snapshot_meta(snapshot, entities=len(SCORES)), SCORES)
    promote(store, snapshot)


def test_the_store_does_not_grow_with_every_run(store: Store, client: Redis) -> None:
    """E2, A6: with every older snapshot retired, the number of keys stays the same, run after run."""
    sizes = []
    for number in range(6):
        _nightly(store, f"1-{number}")
        if number:
            store.control.retire(f"1-{number - 1}")
        sizes.append(client.dbsize())
    assert len(set(sizes)) == 1


def test_no_key_is_found_by_scanning(store: Store, settings: Settings, client: Redis) -> None:
    """E4: a whole life of snapshots needs neither SCAN nor KEYS, and nothing else that walks the key space."""
    for number in range(3):
        _nightly(store, f"1-{number}")
    store.control.retire("1-0")
    store.catalogue.snapshots()
    models(settings)
    used = {name.removeprefix("cmdstat_").split("|")[0] for name in client.info("commandstats")}
    assert not used & {"scan", "keys", "hscan", "sscan", "randomkey", "flushdb", "flushall", "sort"}
    assert {"hset", "unlink"} <= used


def test_a_bucket_is_a_compact_listpack(store: Store, client: Redis) -> None:
    """E2: that is why an entity costs some twenty bytes, and not two hundred."""
    _nightly(store, "1-0")
    assert {client.object("encoding", KEYS.bucket("1-0", bucket)) for bucket in range(40)} == {b"listpack"}


def test_models_are_those_with_snapshots(store: Store, settings: Settings) -> None:
    """A model is listed from its first snapshot until its last one is retired."""
    assert models(settings) == []
    for snapshot in ("1-A", "1-B"):
        load(store, snapshot_meta(snapshot), {"a": 1.0})
    store.control.retire("1-A")
    assert models(settings) == ["churn"]
    store.control.retire("1-B")
    assert models(settings) == []


def test_two_models_do_not_meet(store: Store, settings: Settings) -> None:
    """The same snapshot id under two models is two snapshots."""
    meta = load(store, snapshot_meta("1-A"), {"a": 1.0})
    with open_store(settings, "upsell") as other:
        assert other.catalogue.snapshots() == []
        assert other.writer.read(meta, ["a"]) == [Lost("bucket")]


def test_a_removal_that_crashed_is_finished_by_the_next(store: Store, client: Redis) -> None:
    """The metadata goes last: with half of the buckets gone, the same call removes the rest."""
    meta = load(store, snapshot_meta("1-A", entities=len(SCORES)), SCORES)
    store.control.mark("1-A", SnapshotState.RETIRING)
    client.unlink(*(KEYS.bucket("1-A", bucket) for bucket in range(10)))
    lease = store.leases.acquire("test", 30)
    with pytest.raises(SnapshotNotReady):
        store.control.promote("1-A", lease, by="test")
    assert store.control.retire("1-A") == meta.buckets - 10
    assert store.catalogue.snapshots() == []


def test_a_bucket_lost_while_loading_is_whole_after_the_write(store: Store, client: Redis) -> None:
    """The marker is written with the entities, so a bucket is never there without it."""
    meta = snapshot_meta("1-A", entities=len(SCORES))
    store.writer.begin(meta)
    client.unlink(KEYS.bucket("1-A", 3))
    store.writer.fill(meta, [publish_batch(meta, SCORES)])
    assert client.hexists(KEYS.bucket("1-A", 3), "")
    assert store.writer.count(meta) == len(SCORES)


def test_a_lost_bucket_shows_in_the_count(store: Store, client: Redis) -> None:
    """Verification compares the count with the manifest: what is gone is missing there."""
    meta = load(store, snapshot_meta("1-A", entities=len(SCORES)), SCORES)
    lost = client.hlen(KEYS.bucket("1-A", 3)) - 1
    client.unlink(KEYS.bucket("1-A", 3))
    assert store.writer.count(meta) == len(SCORES) - lost


@pytest.mark.parametrize("key", ["snapshots", "history"])
def test_control_keys_with_foreign_bytes_are_corrupt(store: Store, client: Redis, key: str) -> None:
    """G9: metadata and history that do not read are an error of ours."""
    _nightly(store, "1-A")
    if key == "snapshots":
        client.hset(KEYS.snapshots(), "1-A", "{")
    else:
        client.lset(KEYS.history(), 0, "{")
    with pytest.raises(StoreCorrupt):
        store.catalogue.active() if key == "snapshots" else store.catalogue.history()


def test_a_pointer_without_metadata_is_corrupt(store: Store, client: Redis) -> None:
    """F2: a pointer whose metadata was evicted is said to be so, and is not None."""
    _nightly(store, "1-A")
    client.delete(KEYS.snapshots())
    with pytest.raises(StoreCorrupt, match="without metadata"):
        store.catalogue.active()


def test_a_renewed_lease_counts_from_now(store: Store, client: Redis) -> None:
    """The server itself ends a lease; a renewal gives it its whole term again."""
    lease = store.leases.acquire("long run", 100)
    assert 0 < client.pttl(KEYS.lease()) <= 100_000
    store.leases.renew(replace(lease, seconds=1000))
    assert client.pttl(KEYS.lease()) > 100_000
