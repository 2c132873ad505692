"""Whole lives of a store: runs of two versions are published, joined, killed, resumed, promoted, taken back, retired,
and the store loses what it has. Whatever the order: who reads gets what one whole snapshot says, or is told that it
cannot be told."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Lock
from uuid import uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis
from support.chronicle import Chronicle, counts
from support.fuzzing import budget
from support.lives import IDS, MODEL, TABLES, VERSIONS, Library, Run, Says, digest_of, library, told
from support.readers import Readers
from support.servers import ValkeyProcess
from support.stores import settings_for

from batch_job import content, copying
from batch_job.into import Into
from batch_job.job import Means
from batch_job.lease import held_lease
from batch_job.manifest import RunManifest, RunState, read_manifest
from batch_job.progress import Silent
from batch_job.publication import resident
from batch_job.publish import publish_run
from batch_job.snapshot_file import record_active
from service.lookup import Miss, StoreDown, outcome
from shared.errors import (
    MixedVersions,
    RunError,
    SnapshotError,
    SnapshotHeld,
    SnapshotNotFound,
    SnapshotNotReady,
    StoreCorrupt,
)
from shared.layout import Keys
from shared.settings import GateSettings
from shared.snapshot import Absent, Lease, Listed, Lookup, SnapshotMeta, SnapshotState
from shared.snapshot_file import open_snapshot_file
from shared.snapshot_file_layout import PATTERN
from shared.snapshot_file_record import open_newest, read_record
from shared.store.connect import open_store
from shared.testing.clock import FrozenClock

COVERAGE, KEEP = 0.5, 2
READABLE = {SnapshotState.READY, SnapshotState.HELD}
WHOLE = [table for table, (_, into) in TABLES.items() if into is Into.ALONE]
PARTS = [table for table in TABLES if table not in WHOLE]
KILL = st.just(0) | st.integers(1, 60)
"""The step of a publication at which its process is killed; 0: it is not."""


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return library(tmp_path_factory.mktemp("lives"))


@pytest.fixture(scope="module")
def small_slabs() -> Iterator[None]:
    """So that little is written and read in several pieces. No power fails here: nothing waits for a disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(content, "SLAB_ROWS", 40)
        patch.setattr(copying, "BUCKETS_READ", 2)
        yield


@pytest.mark.usefixtures("small_slabs")
def test_whatever_happens_readers_see_one_whole_snapshot(
    scored: Library, valkey: ValkeyProcess, tmp_path: Path
) -> None:
    """Of any order of publications, crashes, flips and losses: after each, and at every step within."""
    folders = count()

    def begin() -> RuleBasedStateMachine:
        return Life(scored, valkey, tmp_path / str(next(folders)))

    run_state_machine_as_test(begin, settings=budget(7, stateful_step_count=10))


class Life(RuleBasedStateMachine):
    """One store from its beginning, with the folder of its runs, and two services that look at it."""

    runs = Bundle("runs")

    def __init__(self, scored: Library, valkey: ValkeyProcess, home: Path) -> None:
        super().__init__()
        self.scored, self.known, self.clock = scored, Chronicle(), FrozenClock()
        settings = settings_for(valkey.url, f"life{uuid4().hex[:12]}")
        gates = GateSettings(max_psi=100, min_coverage=COVERAGE, keep=KEEP)
        self.settings = settings.model_copy(update={"home": home, "gates": gates})
        self.keys = Keys(settings.redis.namespace, MODEL)
        self.stack = ExitStack()
        self.client = self.stack.enter_context(Redis(port=valkey.port))
        self.store = self.stack.enter_context(open_store(self.settings, MODEL, clock=self.clock))
        self.readers = self.stack.enter_context(Readers(self.settings, self.clock))
        self.numbers = count(1)
        self.means = Means(
            settings=self.settings, clock=self.clock, stopwatch=self.clock, entropy=self._entropy, sleep=self._sleep
        )

    def teardown(self) -> None:
        self.stack.close()

    @initialize(target=runs, version=st.sampled_from(VERSIONS))
    def begin(self, version: str) -> Run:
        return self._scored("monday", version, 0)

    @rule(target=runs, table=st.sampled_from(WHOLE), version=st.sampled_from(VERSIONS), kill=KILL)
    def publish_a_table(self, table: str, version: str, kill: int) -> Run:
        return self._scored(table, version, kill)

    @rule(target=runs, table=st.sampled_from(PARTS), kill=KILL)
    def publish_a_part(self, table: str, kill: int) -> Run:
        """Of the version that is active, most often: nothing else can be joined."""
        version = (self.known.pointer or VERSIONS[0]).partition("-")[0]
        return self._scored(table, version, kill)

    @rule(target=runs, table=st.sampled_from(PARTS), version=st.sampled_from(VERSIONS))
    def publish_a_part_of_some_version(self, table: str, version: str) -> Run:
        return self._scored(table, version, 0)

    @rule(run=runs)
    def resume(self, run: Run) -> None:
        self._publish(run, 0)

    @rule(run=runs, kill=KILL)
    def resume_and_kill(self, run: Run, kill: int) -> None:
        self._publish(run, kill)

    @precondition(lambda self: self.known.resident)
    @rule(what=st.sampled_from(["promote", "roll back", "retire"]), data=st.data(), forced=st.booleans())
    def flip(self, what: str, data: st.DataObject, forced: bool) -> None:  # noqa: FBT001
        row = data.draw(st.sampled_from(self.store.catalogue.snapshots()))
        match what:
            case "promote":
                self._promote(row, forced=forced)
            case "retire":
                self._retire(row, forced=forced)
            case _:
                self._roll_back()
        record_active(self.settings.runs_folder, MODEL, self.store)

    @precondition(lambda self: self.known.resident)
    @rule(what=st.sampled_from(["bucket", "bucket", "pointer", "everything"]), data=st.data())
    def lose(self, what: str, data: st.DataObject) -> None:
        match what:
            case "bucket":
                meta = data.draw(st.sampled_from(self.store.catalogue.snapshots())).meta
                bucket = data.draw(st.integers(0, meta.buckets - 1))
                self.client.delete(self.keys.bucket(meta.snapshot, bucket))
                self.known.damaged.setdefault(meta.snapshot, set()).add(bucket)
            case "pointer":
                self.client.delete(self.keys.active())
                self.known.pointer = None
            case _:
                self.client.delete(*self.client.scan_iter(f"{self.keys.namespace}:*", count=10_000))
                self.known.emptied()

    @rule()
    def the_late_service_polls(self) -> None:
        self.readers.late_polls()

    @invariant()
    def all_is_well(self) -> None:
        self.look()
        self._look_into_the_store()
        self._look_into_the_files()

    def _scored(self, table: str, version: str, kill: int) -> Run:
        self.clock.advance(1)
        number = next(self.numbers)
        out = self.settings.runs_folder / f"{number:03}"
        run = self.scored.copy(table, version, out, int(self.clock.now()), number.to_bytes(10))
        self._publish(run, kill)
        return run

    def _publish(self, run: Run, kill: int) -> None:
        manifest = read_manifest(run.out)
        assert manifest is not None
        row = self.store.catalogue.active()
        active = None if row is None else row.meta
        expected = self._refusals(run, manifest, active)
        before = self.known.pointer
        observer = _Witness(self, run, active, kill)
        if run.into is Into.ACTIVE and active is not None and MixedVersions not in expected:
            self.known.joins(run, active)
        try:
            published = publish_run(run.out, self.store, replace(self.means, observer=observer), into=run.into)
        except Killed:
            self.client.set(self.keys.lease(), "token somebody who died", px=60_000)
        except tuple(expected - {StoreCorrupt}):
            assert self._pointer() == before
        except StoreCorrupt:
            assert StoreCorrupt in expected
        else:
            assert not expected - {StoreCorrupt}
            self._ended(published, before)
        after = self._pointer()
        if after is not None and after != before:
            assert observer.wrote == after
            self.known.flipped(after, "promote")

    def _ended(self, published: RunManifest, before: str | None) -> None:
        """The run's scores are in, or were before; what was active can be gone back to."""
        states = {row.meta.snapshot: row.state for row in self.store.catalogue.snapshots()}
        if self._pointer() == published.joined and not self.known.damaged.get(published.joined):
            record = read_record(self.settings.runs_folder, MODEL).active
            assert record is not None
            assert record.snapshot == published.joined
            assert record.file is not None
        if self._pointer() != before:
            assert list(states.values()).count(SnapshotState.READY) <= KEEP
            assert before is None or states[before] is SnapshotState.READY

    def _refusals(self, run: Run, manifest: RunManifest, active: SnapshotMeta | None) -> set[type[Exception]]:
        """With what the run may be refused: one of these, or StoreCorrupt alone if it may be; nothing: it must not."""
        row = resident(self.store, manifest.snapshot)
        if _is_done(run, manifest, active, there=row is not None):
            return {StoreCorrupt} if active is not None and self.known.damaged.get(active.snapshot) else set()
        if active is not None and active.snapshot == manifest.snapshot:
            return {StoreCorrupt} if self.known.damaged.get(active.snapshot) else set()
        if run.into is Into.ALONE:
            few = active is not None and counts(run.says)[1] < COVERAGE * active.scored
            return {SnapshotHeld} if few else set()
        return self._refusals_to_join(run, manifest, active)

    def _refusals_to_join(self, run: Run, manifest: RunManifest, active: SnapshotMeta | None) -> set[type[Exception]]:
        if active is None:
            return {SnapshotNotFound}
        if run.into is Into.ACTIVE and _has(active, run):
            return {StoreCorrupt} if self.known.damaged.get(active.snapshot) else set()
        if active.model_version != run.version:
            return {MixedVersions}
        left = active.unfinished
        if left is not None and (left.run_key != manifest.run_key or run.into is not Into.ACTIVE):
            return {SnapshotNotReady}
        if manifest.started_at < active.scored_at:
            return {RunError}
        joined = {**self.known.of(active)[-1], **run.says}
        held = {SnapshotHeld} if counts(joined)[1] < COVERAGE * active.scored and left is None else set()
        torn = any(self.known.damaged.get(one) for one in (active.snapshot, manifest.snapshot))
        return held | ({StoreCorrupt} if torn else set())

    def look(self) -> None:
        """What the services say, with the pointers that they know."""
        metas = {row.meta.snapshot: row.meta for row in self.store.catalogue.snapshots()}
        for view in self.readers.look_up(self.known):
            if view.active is None:
                assert all(one == Miss() for one in view.outcomes.values())
                continue
            meta = metas.get(view.active.meta.snapshot)
            for entity, one in view.outcomes.items():
                if one == StoreDown("lost"):
                    assert meta is None or self.known.is_lost(meta, entity)
                else:
                    assert meta is not None, "a snapshot that is not there answers"
                    assert one in [outcome(says.get(entity, Absent())) for says in self.known.of(meta)]

    def _look_into_the_store(self) -> None:
        rows = self.store.catalogue.snapshots()
        self.known.sees(rows)
        assert self._pointer() == self.known.pointer
        assert [(flip.action, flip.snapshot) for flip in self.store.catalogue.history()] == self.known.flips
        for meta in (row.meta for row in rows if row.state in READABLE):
            says = self.known.of(meta)
            assert (meta.published, meta.scored, meta.rejected) == counts(says[-1])
            assert meta.model_version == meta.snapshot.partition("-")[0]
            found = self.store.writer.read(meta, IDS)
            assert _fits(found, says, lost=[self.known.is_lost(meta, entity) for entity in IDS])
            if meta.unfinished is None:
                whole = sum(not self.known.is_lost(meta, entity) for entity in says[-1])
                assert self.store.writer.count(meta) == whole

    def _look_into_the_files(self) -> None:
        """Each has what one whole snapshot says; and that of a version, if one was promoted, is of that version."""
        runs = self.settings.runs_folder
        for path in runs.glob(PATTERN):
            with open_snapshot_file(path) as opened:
                assert _fits(opened.lookup(IDS), self.known.of(opened.meta))
        for version in VERSIONS:
            newest = open_newest(runs, MODEL, digest_of(version))
            if newest is not None:
                with newest:
                    assert newest.meta.model_version == version

    def _pointer(self) -> str | None:
        active = self.store.catalogue.active()
        return None if active is None else active.meta.snapshot

    def _promote(self, row: Listed, *, forced: bool) -> None:
        name = row.meta.snapshot
        with self._lease("promote") as lease:
            if row.state is SnapshotState.READY or (row.state is SnapshotState.HELD and forced):
                self.store.control.promote(name, lease, by="test", forced=forced)
                self.known.flipped(name, "promote")
            else:
                with pytest.raises(SnapshotError):
                    self.store.control.promote(name, lease, by="test", forced=forced)

    def _retire(self, row: Listed, *, forced: bool) -> None:
        with self._lease("retire"):
            if row.active or (row.state is not SnapshotState.READY and not forced):
                with pytest.raises(SnapshotError):
                    self.store.control.retire(row.meta.snapshot, force=forced)
            else:
                self.store.control.retire(row.meta.snapshot, force=forced)

    def _roll_back(self) -> None:
        usable = [row.meta.snapshot for row in self.store.catalogue.snapshots() if row.state is SnapshotState.READY]
        target = self.known.back(usable)
        with self._lease("rollback") as lease:
            if target is None:
                with pytest.raises(SnapshotNotFound):
                    self.store.control.rollback(lease, by="test")
            else:
                assert self.store.control.rollback(lease, by="test").snapshot == target
                self.known.flipped(target, "rollback")

    def _lease(self, what: str) -> AbstractContextManager[Lease]:
        return held_lease(self.store.leases, what, 30, stopwatch=self.clock, sleep=self._sleep)

    def _entropy(self, size: int) -> bytes:
        return next(self.numbers).to_bytes(size)

    def _sleep(self, seconds: float) -> None:
        """For as long as it takes the lease of one who died to lapse."""
        self.client.delete(self.keys.lease())


class _Witness(Silent):
    """Looks on while a run is published, and ends that at a step. Threads make steps at the same time."""

    def __init__(self, life: Life, run: Run, active: SnapshotMeta | None, kill: int) -> None:
        self._life, self._run, self._active, self._left = life, run, active, kill
        self.wrote: str | None = None
        self._one = Lock()

    def step(self, name: str) -> None:
        with self._one:
            self._step(name)

    def _step(self, name: str) -> None:
        if name == "publishing":
            manifest = read_manifest(self._run.out)
            assert manifest is not None
            self.wrote = manifest.snapshot
            self._life.known.begins(self._run, manifest.snapshot, self._active)
        elif name == "snapshot begun":
            self._life.known.damaged.pop(self.wrote or "", None)
        self._life.look()
        self._left -= 1
        if not self._left:
            raise Killed


def _fits(found: Sequence[Lookup], says: Sequence[Says], lost: Sequence[bool] | None = None) -> bool:
    """Whether each of ``IDS`` has what may be said of it."""
    known = [told(one) for one in says]
    gone = lost or [False] * len(IDS)
    pairs = zip(IDS, found, gone, strict=True)
    return all(away or one in [some[entity] for some in known] for entity, one, away in pairs)


def _is_done(run: Run, manifest: RunManifest, active: SnapshotMeta | None, *, there: bool) -> bool:
    """Whether the same call again must change nothing."""
    overtaken = active is not None and manifest.started_at < active.scored_at
    if manifest.state is RunState.UPDATED:
        return overtaken or (active is not None and _has(active, run))
    return manifest.state is RunState.PROMOTED and (there or (run.into is Into.NEW and overtaken))


def _has(active: SnapshotMeta, run: Run) -> bool:
    return any(one.run == run.name and one.whole for one in active.subsets)
