"""What the doctor says of a model in the store."""

from redis import Redis
from support.doctor import Doctor
from support.publish import publish
from support.servers import ValkeyProcess
from support.stores import settings_for

from shared.bundle import Bundle
from shared.layout import Keys
from shared.scorer import Scorer
from shared.snapshot import SnapshotState
from shared.store.connect import open_store

ROWS = {f"C{place}": {"visits": place % 5, "returns": 0, "basket": 2} for place in range(200)}


def test_the_next_snapshot_must_fit(doctor: Doctor, server: ValkeyProcess, namespace: str, scorer: Scorer) -> None:
    """What the active one takes is measured; a limit below two of them fails, before a night does."""
    with open_store(settings_for(server.url, namespace), "purchase") as store:
        publish(store, scorer, ROWS, published=200_000_000)
    with Redis(port=server.port) as client:
        client.config_set("maxmemory", 64 * 1024**2)
    assert doctor(server.url, "--model", "purchase") == 1
    assert doctor.level("room for two") == "failure"
    assert "measured" in doctor.text("room for two")


def test_buckets_kept_as_tables_are_found(
    doctor: Doctor, server: ValkeyProcess, namespace: str, scorer: Scorer
) -> None:
    """A server whose limits are too low keeps buckets in several times the memory."""
    with Redis(port=server.port) as client:
        client.config_set("hash-max-listpack-entries", 4)
    with open_store(settings_for(server.url, namespace), "purchase") as store:
        publish(store, scorer, ROWS)
    doctor(server.url, "--model", "purchase")
    assert doctor.level("buckets") == "warning"
    assert "hashtable" in doctor.text("buckets")


def test_an_old_snapshot_is_the_alarm(doctor: Doctor, valkey: ValkeyProcess, namespace: str, scorer: Scorer) -> None:
    """The age is held against what the schedule allows."""
    with open_store(settings_for(valkey.url, namespace), "purchase") as store:
        publish(store, scorer, ROWS, scored_at=1_700_000_000)
    assert doctor(valkey.url, "--model", "purchase") == 1
    assert doctor.level("age") == "failure"
    assert "129,600 s" in doctor.text("age")


def test_lost_buckets_are_found(doctor: Doctor, valkey: ValkeyProcess, namespace: str, scorer: Scorer) -> None:
    """A pointer to buckets that are gone is no snapshot."""
    with open_store(settings_for(valkey.url, namespace), "purchase") as store:
        meta = publish(store, scorer, ROWS)
    keys = Keys(namespace, "purchase")
    with Redis(port=valkey.port) as client:
        client.unlink(*(keys.bucket(meta.snapshot, place) for place in range(meta.buckets)))
    assert doctor(valkey.url, "--model", "purchase") == 1
    assert doctor.level("buckets") == "failure"


def test_metadata_that_does_not_read_is_found(
    doctor: Doctor, valkey: ValkeyProcess, namespace: str, scorer: Scorer
) -> None:
    """Bytes that are not ours are told in our words, and the bundle is looked at all the same."""
    with open_store(settings_for(valkey.url, namespace), "purchase") as store:
        meta = publish(store, scorer, ROWS)
    with Redis(port=valkey.port) as client:
        client.hset(Keys(namespace, "purchase").snapshots(), meta.snapshot, "{")
    assert doctor(valkey.url, scorer.bundle.path) == 1
    assert "does not read" in doctor.text("model")
    assert doctor.level("certified") == "ok"


def test_who_is_at_work_and_what_is_left_over(
    doctor: Doctor, valkey: ValkeyProcess, namespace: str, scorer: Scorer
) -> None:
    """The lease's holder and time are told; a half-written snapshot is left over only when nobody is at work."""
    with open_store(settings_for(valkey.url, namespace), "purchase") as store:
        publish(store, scorer, ROWS, snapshot="1-A", active=False)
        publish(store, scorer, ROWS, snapshot="1-B", active=False)
        store.control.mark("1-A", SnapshotState.WRITING)
        store.control.mark("1-B", SnapshotState.HELD)
        lease = store.leases.acquire("somebody@host 1", 60)
        doctor(valkey.url, "--model", "purchase")
        assert "somebody@host 1" in doctor.text("lease")
        assert [finding["level"] for finding in doctor.found["left over"]] == ["warning", "note"]
        store.leases.release(lease)
    doctor(valkey.url, "--model", "purchase")
    assert doctor.level("lease") == "ok"
    assert [finding["level"] for finding in doctor.found["left over"]] == ["warning", "warning"]


def test_a_lease_that_never_lapses_is_found(doctor: Doctor, valkey: ValkeyProcess, namespace: str) -> None:
    """It would keep every run out for good."""
    with Redis(port=valkey.port) as client:
        client.set(Keys(namespace, "purchase").lease(), "token me")
    assert doctor(valkey.url, "--model", "purchase") == 1
    assert "DEL" in doctor.text("lease")


def test_another_bundle_is_told_from_what_is_served(
    doctor: Doctor, valkey: ValkeyProcess, namespace: str, scorer: Scorer, other_bundle: Bundle
) -> None:
    """Another version is a note, another bundle of one version a failure, another rounding a warning."""
    with open_store(settings_for(valkey.url, namespace), "purchase") as store:
        publish(store, scorer, ROWS, golden_digest="0" * 64)
        doctor(valkey.url, scorer.bundle.path)
        assert (doctor.level("bundle served"), doctor.level("parity")) == ("ok", "warning")
        doctor(valkey.url, other_bundle.path)
        assert doctor.level("bundle served") == "note"
        publish(store, scorer, ROWS, snapshot="1-B", bundle_digest="0" * 64)
    assert doctor(valkey.url, scorer.bundle.path) == 1
    assert doctor.level("bundle served") == "failure"
