"""A run's parts become a snapshot, and the snapshot the active one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batch_job import content
from batch_job.content import Content, Slabs
from batch_job.job import Means, open_job
from batch_job.manifest import RunManifest, RunState, read_manifest
from batch_job.progress import Silent
from batch_job.publish import publish_run, retirable
from batch_job.run import run_job
from shared.bundle import Bundle
from shared.codes import Code
from shared.errors import BundleConflict, Fenced, LeaseHeld, RunError, SnapshotHeld, StoreCorrupt, StoreDown
from shared.scorer import open_scorer
from shared.settings import GateSettings, RedisSettings, Settings
from shared.snapshot import Absent, Found, KnownRejected, Lost, SnapshotState
from shared.store.connect import open_store
from shared.store.interfaces import Store
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

Write = Callable[..., Path]


@pytest.fixture
def memory(means: Means) -> MemoryStore:
    return MemoryStore("purchase", means.clock)


class Bench:
    """Scores and publishes tables, each as a run of its own."""

    def __init__(self, bundle: Bundle, means: Means, write: Write, folder: Path, store: Store) -> None:
        self.bundle, self.means, self.write, self.folder, self.store = bundle, means, write, folder, store
        self._runs = 0

    def score(self, **columns: object) -> Path:
        """The folder of a new run, scored; every run is a second later than the one before."""
        self._runs += 1
        self.wait(1)
        path = self.write(f"t{self._runs}.parquet", **columns)
        out = self.folder / f"run{self._runs}"
        few = len(pq.read_table(path)) < 10
        run_job(open_job(path, bundle=self.bundle, chunk_size=2 if few else 100), out, self.means)
        return out

    def wait(self, seconds: float) -> None:
        assert isinstance(self.means.clock, FrozenClock)
        self.means.clock.advance(seconds)

    def publish(self, out: Path) -> RunManifest:
        return publish_run(out, self.store, self.means)

    def at_step(self, name: str, act: Callable[[], object]) -> None:
        """Lets something happen at a step of the next publication."""
        self.means = replace(self.means, observer=_At(name, act))

    def active(self) -> str | None:
        active = self.store.catalogue.active()
        return None if active is None else active.meta.snapshot

    def look_up(self, snapshot: str, *ids: str) -> list[object]:
        meta = next(row.meta for row in self.store.catalogue.snapshots() if row.meta.snapshot == snapshot)
        return list(self.store.writer.read(meta, ids))

    def states(self) -> dict[str, SnapshotState]:
        return {row.meta.snapshot: row.state for row in self.store.catalogue.snapshots()}


class _At(Silent):
    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self._name, self._act = name, act

    def step(self, name: str) -> None:
        if name == self._name:
            self._act()


@pytest.fixture
def bench(bundle: Bundle, means: Means, write: Write, tmp_path: Path, memory: MemoryStore) -> Bench:
    return Bench(bundle, means, write, tmp_path, memory.store)


FEW = {"customer_id": ["a", "b"], "visits": [1, 0], "returns": [0, 3], "basket": [2, 1]}


def test_every_score_and_every_rejection_is_in_the_store(bench: Bench) -> None:
    """C1: a scored, a rejected and an unknown entity are three answers; a row without an id is only counted."""
    out = bench.score(customer_id=["a", "b", "c", None], visits=[1, None, 2, 1])
    manifest = bench.publish(out)
    assert manifest.state is RunState.PROMOTED
    assert bench.active() == manifest.snapshot
    scored, rejected, unknown = bench.look_up(manifest.snapshot, "a", "b", "x")
    assert isinstance(scored, Found)
    assert (round(scored.scores[0], 4), scored.scored_at, scored.online) == (0.8581, manifest.started_at, False)
    assert rejected == KnownRejected(code=Code.MISSING, field="visits", scored_at=manifest.started_at)
    assert unknown == Absent()


def test_the_metadata_of_the_snapshot(bench: Bench, bundle: Bundle) -> None:
    """The snapshot says what it is of, how old, how many, and how its scores are distributed."""
    manifest = bench.publish(bench.score(customer_id=["a", "b", "c", None], visits=[1, None, 2, 1]))
    active = bench.store.catalogue.active()
    assert active is not None
    meta = active.meta
    assert (meta.model, meta.model_version, meta.bundle_digest) == ("purchase", "1", bundle.digest)
    assert (meta.input_rows, meta.scored, meta.rejected, meta.duplicate, meta.published) == (4, 2, 2, 0, 3)
    assert (meta.golden_digest, meta.run_key) == (manifest.golden_digest, manifest.run_key)
    assert meta.data_as_of == manifest.data_as_of
    assert sum(meta.histograms[0].counts) == 2


def test_the_same_call_again_changes_nothing(bench: Bench) -> None:
    """A promoted run that the store still has is done."""
    out = bench.score()
    first = bench.publish(out)
    assert bench.publish(out) == first
    assert len(bench.store.catalogue.history()) == 1


def test_an_entity_of_yesterday_is_not_in_the_snapshot_of_today(bench: Bench) -> None:
    """A5: B was in the first run only; after the second it is absent."""
    bench.publish(bench.score(**{**FEW, "customer_id": ["A", "B"]}))
    bench.means = replace(
        bench.means, settings=bench.means.settings.model_copy(update={"gates": GateSettings(min_coverage=0.1)})
    )
    bench.publish(bench.score(customer_id=["A"], visits=[1], returns=[0], basket=[2]))
    active = bench.active()
    assert active is not None
    found, absent = bench.look_up(active, "A", "B")
    assert isinstance(found, Found)
    assert absent == Absent()


def test_new_weights_under_an_old_version_are_refused(bench: Bench, other_bundle: Bundle, tmp_path: Path) -> None:
    """A2: a version belongs to one bundle."""
    bench.store.catalogue.claim("1", other_bundle.digest)
    out = bench.score()
    with pytest.raises(BundleConflict):
        bench.publish(out)
    assert bench.active() is None


def test_a_store_that_lost_everything_is_filled_from_the_parts(bench: Bench, memory: MemoryStore) -> None:
    """The store is a cache: the same scores come back, without scoring, and are as old as they were."""
    out = bench.score()
    bench.publish(out)
    before = bench.store.catalogue.active()
    memory.lose_everything()
    snapshot = bench.publish(out).snapshot
    after = bench.store.catalogue.active()
    assert before is not None
    assert after is not None
    assert after.meta == before.meta.model_copy(update={"snapshot": snapshot})
    assert isinstance(bench.look_up(snapshot, "0")[0], Found)


def test_who_knows_a_lost_snapshot_sees_no_half_of_it(bench: Bench, memory: MemoryStore) -> None:
    """It is published again under a new name: a reader whose last known pointer is the old one finds its buckets gone,
    which is no answer, and not there without his entity, which would be one."""
    out = bench.score()
    old = bench.publish(out).snapshot
    meta = next(row.meta for row in bench.store.catalogue.snapshots())
    memory.lose_everything()
    seen: list[object] = []
    bench.at_step("snapshot begun", lambda: seen.extend(bench.store.writer.read(meta, ["0"])))
    new = bench.publish(out)
    assert isinstance(seen[0], Lost)
    assert new.snapshot != old
    assert bench.publish(out) == new


def test_a_shrunken_snapshot_is_held(bench: Bench) -> None:
    """The coverage gate: the old one stays active, the new one is readable by its id, and the next step is named."""
    old = bench.publish(bench.score())
    out = bench.score(**FEW)
    with pytest.raises(SnapshotHeld, match=r"coverage: 2 entities .* 50.0% .* forescore promote 1-\w+ --force"):
        bench.publish(out)
    held = read_manifest(out)
    assert held is not None
    assert held.state is RunState.HELD
    assert held.reason is not None
    assert bench.active() == old.snapshot
    assert bench.states()[held.snapshot] is SnapshotState.HELD
    assert isinstance(bench.look_up(held.snapshot, "a")[0], Found)


def test_a_held_snapshot_is_judged_again(bench: Bench) -> None:
    """The same call again applies the gates as they are then, without writing again."""
    bench.publish(bench.score())
    out = bench.score(**FEW)
    with pytest.raises(SnapshotHeld):
        bench.publish(out)
    settings = bench.means.settings.model_copy(update={"gates": GateSettings(min_coverage=0.5)})
    bench.means = replace(bench.means, settings=settings)
    assert bench.publish(out).state is RunState.PROMOTED


def test_a_forced_promotion_that_the_store_lost_gets_a_new_name(bench: Bench, memory: MemoryStore) -> None:
    """Its run still says that it is held, and readers know it as the active one: they must not see half of it."""
    bench.publish(bench.score())
    out = bench.score(**FEW)
    with pytest.raises(SnapshotHeld):
        bench.publish(out)
    held = read_manifest(out)
    assert held is not None
    lease = bench.store.leases.acquire("test", 30)
    bench.store.control.promote(held.snapshot, lease, by="test", forced=True)
    memory.lose_everything()
    assert bench.publish(out).snapshot != held.snapshot


def test_a_forced_promotion_is_seen_by_the_run(bench: Bench) -> None:
    """After somebody overruled the gate, the run is promoted, and is not judged again."""
    bench.publish(bench.score())
    out = bench.score(**FEW)
    with pytest.raises(SnapshotHeld):
        bench.publish(out)
    held = read_manifest(out)
    assert held is not None
    lease = bench.store.leases.acquire("test", 30)
    bench.store.control.promote(held.snapshot, lease, by="test", forced=True)
    bench.store.leases.release(lease)
    assert bench.publish(out).state is RunState.PROMOTED


def many(visits: list[int]) -> dict[str, object]:
    rows = len(visits)
    return {"customer_id": list(range(rows)), "visits": visits, "returns": [0] * rows, "basket": [0] * rows}


def test_a_shifted_distribution_is_held(bench: Bench) -> None:
    """The PSI gate compares the scores on the edges of the active snapshot."""
    bench.publish(bench.score(**many([row % 7 for row in range(400)])))
    bench.publish(bench.score(**many([(row * 3) % 7 for row in range(400)])))
    with pytest.raises(SnapshotHeld, match=r"shift of buys: PSI \d\.\d+; at most 0.25"):
        bench.publish(bench.score(**many([5 + row % 2 for row in range(400)])))


def test_the_old_ones_are_retired(bench: Bench) -> None:
    """Two stay: the active one and the one before; a held one stays too."""
    first = bench.publish(bench.score())
    with pytest.raises(SnapshotHeld):
        bench.publish(bench.score(**FEW))
    second, third = bench.publish(bench.score()), bench.publish(bench.score())
    states = bench.states()
    assert first.snapshot not in states
    assert {second.snapshot, third.snapshot} < set(states)
    assert sorted(states.values()) == ["held", "ready", "ready"]


def test_what_is_served_stays_after_a_rollback(bench: Bench) -> None:
    """Retiring follows the history of the pointer, not the age."""
    first, second = bench.publish(bench.score()), bench.publish(bench.score())
    lease = bench.store.leases.acquire("test", 30)
    bench.store.control.rollback(lease, by="test")
    assert bench.active() == first.snapshot
    assert retirable(bench.store, 2) == []
    assert retirable(bench.store, 1) == [second.snapshot]


def test_another_publisher_is_waited_for_and_then_named(bench: Bench) -> None:
    """J9: the lease is somebody else's for longer than a dead holder could have it: refused, with the holder."""
    out = bench.score()
    bench.store.leases.acquire("nightly run", 3600)
    slept: list[float] = []
    watch = FrozenClock()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        watch.advance(seconds)

    bench.means = replace(bench.means, stopwatch=watch, sleep=sleep)
    with pytest.raises(LeaseHeld, match="nightly run"):
        bench.publish(out)
    assert 30 <= sum(slept) <= 32
    assert bench.active() is None


def test_a_publisher_that_lost_its_lease_does_not_promote(bench: Bench) -> None:
    """J7: a holder that was paused finds itself fenced, and the pointer stays."""
    old = bench.publish(bench.score())
    out = bench.score()

    def pause() -> None:
        bench.wait(60)
        bench.store.leases.acquire("somebody else", 30)

    bench.at_step("ready", pause)
    with pytest.raises(Fenced):
        bench.publish(out)
    assert bench.active() == old.snapshot


def test_entities_that_the_store_lost_stop_the_promotion(bench: Bench, memory: MemoryStore) -> None:
    """The store must hold as many entities as were written."""
    out = bench.score()

    bench.at_step("slab written", lambda: memory.lose_bucket(bench.store.catalogue.snapshots()[0].meta, "0"))
    with pytest.raises(StoreCorrupt, match="holds 0 of 4 entities; it evicts or loses keys"):
        bench.publish(out)
    assert bench.active() is None


def test_an_entity_that_reads_back_otherwise_stops_the_promotion(bench: Bench, memory: MemoryStore) -> None:
    """A sample must come back to the bit."""
    out = bench.score()

    bench.at_step("slab written", lambda: memory.corrupt(bench.store.catalogue.snapshots()[0].meta, "2"))
    with pytest.raises(StoreCorrupt, match="reads back otherwise"):
        bench.publish(out)
    assert bench.active() is None


def test_a_changed_part_is_not_published(bench: Bench) -> None:
    """D7: the parts are those that the run wrote, by their digests."""
    out = bench.score()
    path = out / "parts" / "part-00000.parquet"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(RunError, match="not the part that the run wrote"):
        bench.publish(out)


def test_a_folder_without_a_scored_run_is_refused(bench: Bench, tmp_path: Path) -> None:
    """There must be something to publish."""
    with pytest.raises(RunError, match="holds no scored run"):
        bench.publish(tmp_path / "nothing")


def test_a_store_that_fails_leaves_the_run_to_be_published_again(bench: Bench, memory: MemoryStore) -> None:
    """D4: the old snapshot serves on, and the same call goes on once the store is back."""
    old = bench.publish(bench.score())
    out = bench.score()

    def fail() -> None:
        memory.failure = StoreDown("gone")

    bench.at_step("snapshot begun", fail)
    with pytest.raises(StoreDown):
        bench.publish(out)
    memory.failure = None
    assert bench.active() == old.snapshot
    bench.wait(60)  # the lease of the failed call lapses
    bench.at_step("", lambda: None)
    assert bench.publish(out).snapshot == bench.active()


@pytest.mark.parametrize("memory_rows", [1, 10**6])
def test_slabs_are_sorted_bounded_and_whole(bench: Bench, monkeypatch: pytest.MonkeyPatch, memory_rows: int) -> None:
    """However many passes, every entity goes out once, in the order of the buckets."""
    monkeypatch.setattr(content, "PASS_ROWS", 100)
    monkeypatch.setattr(content, "SLAB_ROWS", 64)
    out = bench.score(**many([row % 7 for row in range(500)]))
    manifest = bench.publish(out)
    active = bench.store.catalogue.active()
    assert active is not None
    slabs = Slabs(Content(out, manifest), active.meta, renew=lambda: None, memory_rows=memory_rows)
    batches = list(slabs.batches())
    assert max(map(len, batches)) <= 64
    ids = [entity_id for batch in batches for entity_id in batch.ids.to_pylist()]
    assert sorted(ids) == sorted(map(str, range(500)))
    buckets = [bucket for batch in batches for bucket in batch.buckets.tolist()]
    assert buckets == sorted(buckets)
    assert 200 <= len(slabs.samples) <= 250


def test_a_run_on_a_real_server(
    bundle: Bundle, other_bundle: Bundle, means: Means, write: Write, tmp_path: Path, redis_settings: RedisSettings
) -> None:
    """Published, replaced by another version, rolled back: each time the whole snapshot is served, from Valkey."""
    settings = Settings(home=tmp_path, redis=redis_settings)
    with open_store(settings, "purchase") as store:
        first = Bench(bundle, replace(means, settings=settings), write, tmp_path / "1", store)
        one = first.publish(first.score())
        scorer = open_scorer(other_bundle, device="cpu")
        second_means = replace(means, settings=settings, open_scores=lambda: scorer, entropy=lambda n: b"\1" * n)
        second = Bench(other_bundle, second_means, write, tmp_path / "2", store)
        out = second.score()
        two = second.publish(out)
        active = store.catalogue.active()
        assert active is not None
        assert (active.meta.snapshot, active.meta.model_version) == (two.snapshot, "2")
        lease = store.leases.acquire("test", 30)
        store.control.rollback(lease, by="test")
        store.leases.release(lease)
        found = first.look_up(one.snapshot, "0", "1", "2", "3")
        scores = [round(entity.scores[0], 4) for entity in found if isinstance(entity, Found)]
        assert scores == [0.8581, 0.31, 0.7311, 0.69]


def test_integer_and_text_ids_are_one_entity(bench: Bench) -> None:
    """B1: an int32 5 and the text "5" are found under the same id, ids above 2**53 too."""
    ids = pa.array([5, 2**31 - 1], pa.int32())
    manifest = bench.publish(bench.score(**{**FEW, "customer_id": ids}))
    assert all(isinstance(found, Found) for found in bench.look_up(manifest.snapshot, "5", "2147483647"))
    manifest = bench.publish(bench.score(**{**FEW, "customer_id": [2**53, 2**53 + 1]}))
    found = bench.look_up(manifest.snapshot, "9007199254740992", "9007199254740993", "9007199254740994")
    assert [type(entity) for entity in found] == [Found, Found, Absent]
