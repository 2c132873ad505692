"""A run's parts become a snapshot, and the snapshot, if it passes, the active one.

    claim the version -> lease -> begin -> write in slabs -> verify -> gates -> ready -> promote -> retire the old

A run over a part of the entities goes into a copy of the active snapshot (``copying``), in the same steps, or into the
active snapshot itself (``updating``). Killed anywhere, the same call again ends the same way: readers see the old
snapshot until the one flip.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from batch_job.atomic import writable
from batch_job.content import Content, Slabs
from batch_job.copying import Copy
from batch_job.garbage import old_objects_left_out
from batch_job.gates import histograms_of
from batch_job.histograms import Edges, decile_edges, histograms_on
from batch_job.into import Into
from batch_job.job import Means
from batch_job.joining import require_joinable, required
from batch_job.lease import held_lease, whoami
from batch_job.lock import run_lock
from batch_job.manifest import RunManifest, RunState, changed, read_manifest, write_manifest
from batch_job.pipeline import Channel, ahead
from batch_job.publication import Publication, active_snapshot, resident, state_of
from batch_job.snapshot_file import SnapshotFileStep
from batch_job.union import SUBSETS_KEPT, union
from batch_job.updating import Update, is_updated
from shared.errors import RunError, SnapshotHeld, StoreCorrupt
from shared.layout import buckets_for
from shared.snapshot import Histogram, Lease, Lookup, SnapshotMeta, SnapshotState, SubsetRun
from shared.store.interfaces import PublishBatch, Store
from shared.ulid import ENTROPY_BYTES, ulid, ulid_milliseconds


@old_objects_left_out()
def publish_run(
    run_dir: Path, store: Store, means: Means, lease: Lease | None = None, *, into: Into = Into.ALONE
) -> RunManifest:
    """Publishes a scored run and promotes its snapshot; returns the manifest as it is then.

    ``lease``: the one that the whole run holds already; without it, one is acquired. SnapshotHeld if a gate holds it
    back, LeaseHeld if somebody else publishes, Fenced if they took over meanwhile, MixedVersions if the active
    snapshot, which it is to join, is of another model. A run that was promoted and is still in the store is left
    alone; one that the store lost is published again, under a new name.
    """
    with writable(run_dir), run_lock(run_dir):
        manifest = read_manifest(run_dir)
        if manifest is None or not manifest.done or manifest.golden_digest is None:
            raise RunError(f"{run_dir}: holds no scored run; run the backfill first")
        if _is_done(manifest, store):
            SnapshotFileStep(run_dir, manifest, store, means).restore()
            return manifest
        store.catalogue.claim(manifest.model_version, manifest.bundle_digest)
        means.observer.step("version claimed")
        with _leased(store, manifest.snapshot, means) if lease is None else nullcontext(lease) as held:
            means.observer.step("lease acquired")
            if into is Into.ACTIVE:
                return Update(run_dir, changed(manifest, reason=None, into=into), store, held, means).finish()
            if into is Into.NEW:
                manifest = _named(manifest, store, means)
            elif _was_lost(manifest, store):
                manifest = changed(manifest, snapshot=_name_after(manifest.snapshot, manifest, means))
            manifest = changed(manifest, state=RunState.PUBLISHING, reason=None, into=into)
            manifest = write_manifest(run_dir, manifest)
            means.observer.step("publishing")
            return _Publication(run_dir, manifest, store, held, means).finish()


def _is_done(manifest: RunManifest, store: Store) -> bool:
    if manifest.state is RunState.UPDATED:
        return is_updated(active_snapshot(store), manifest)
    if manifest.into is not Into.NEW:
        return state_of(store, manifest.snapshot) is not None and manifest.state is RunState.PROMOTED
    active = active_snapshot(store)
    overtaken = active is not None and manifest.started_at < active.scored_at
    return manifest.state is RunState.PROMOTED and (overtaken or resident(store, manifest.snapshot) is not None)


def _leased(store: Store, snapshot: str, means: Means) -> AbstractContextManager[Lease]:
    seconds = means.settings.gates.lease_seconds
    return held_lease(store.leases, snapshot, seconds, stopwatch=means.stopwatch, sleep=means.sleep)


def _named(manifest: RunManifest, store: Store, means: Means) -> RunManifest:
    """The run with the name of its copy. One that was made of another base, or of a base that changed, is not gone on.

    A snapshot's name says when its run began, and the schedule knows by it whether a night has its snapshot. A copy is
    as old as its base: its name follows right behind the base's.
    """
    row = resident(store, manifest.snapshot)
    if row is not None and row.active:
        return manifest
    lost = _was_lost(manifest, store)
    base = required(active_snapshot(store), manifest.model)
    require_joinable(base, manifest)
    if row is not None and row.state in {SnapshotState.WRITING, SnapshotState.RETIRING}:
        store.control.retire(manifest.snapshot, force=True)
        row = None
    same = not lost and (row is None or row.meta.subsets[:-1] == base.subsets[1 - SUBSETS_KEPT :])
    if manifest.into is Into.NEW and manifest.base == base.snapshot and same:
        return manifest
    return changed(manifest, snapshot=_name_after(base.snapshot, manifest, means, base.scored_at), base=base.snapshot)


def _was_lost(manifest: RunManifest, store: Store) -> bool:
    """Whether the store has forgotten a snapshot that readers may still know as the active one.

    Under its old name they would see every half of it while it is written again, take who is not there yet for unknown,
    and write scores of their own into it. A run that was held may have been promoted by force since.
    """
    return manifest.into is not None and resident(store, manifest.snapshot) is None


def _name_after(snapshot: str, manifest: RunManifest, means: Means, scored_at: int | None = None) -> str:
    """A name right behind that of another snapshot; ``scored_at``, if that name does not say when it began."""
    began = ulid_milliseconds(snapshot.rpartition("-")[2])
    seconds = manifest.started_at if scored_at is None else scored_at
    moment = seconds * 1000 if began is None else began
    return f"{manifest.model_version}-{ulid(moment + 1, means.entropy(ENTROPY_BYTES))}"


class _Entities(Protocol):
    """What goes into a snapshot, and into its file; ``samples``, once all were given: what must come back."""

    samples: dict[str, Lookup]

    def batches(self) -> Iterator[PublishBatch]: ...


@dataclass(slots=True)
class _Publication(Publication):
    def finish(self) -> RunManifest:
        """Does what is not done yet."""
        started = self.means.stopwatch.now()
        snapshot = self.manifest.snapshot
        active = active_snapshot(self.store)
        if active is None or active.snapshot != snapshot:
            content = Content(self.run_dir, self.manifest)
            content.require_unchanged()
            if self.manifest.into is Into.NEW:
                self._copy(content, required(active, self.manifest.model))
            else:
                self._alone(content, active)
            self.renew()
            self.store.control.promote(snapshot, self.lease, by=whoami())
            self.step("promoted")
        for old in retirable(self.store, self.means.settings.gates.keep):
            self.store.control.retire(old)
            self.step("old snapshot retired")
        self._file().record(snapshot)
        return self.end(RunState.PROMOTED, None, self.means.stopwatch.now() - started)

    def _alone(self, content: Content, active: SnapshotMeta | None) -> None:
        expected = {} if active is None else histograms_of(active)
        edges = {column: histogram.edges for column, histogram in expected.items()}
        meta, counted = self._meta(content, edges)
        if state_of(self.store, meta.snapshot) not in {SnapshotState.READY, SnapshotState.HELD}:
            self._write(meta, Slabs(content, meta, renew=self.renew))
        self._pass_gates(meta, active, counted)

    def _copy(self, content: Content, base: SnapshotMeta) -> None:
        row = resident(self.store, self.manifest.snapshot)  # whole, or it would have been removed
        if row is None:
            meta = self._united(content, base)
            self._write(meta, Copy(base, meta, content, self.store.writer, self.renew))
        else:
            meta = row.meta
        expected = histograms_of(base)
        counted = {column: one for column, one in histograms_of(meta).items() if column in expected}
        self._pass_gates(meta, base, counted)

    def _united(self, content: Content, base: SnapshotMeta) -> SnapshotMeta:
        manifest = self.manifest
        joined = union(base, content, self.store.writer)
        self.step("surveyed")
        run = SubsetRun(
            run=manifest.snapshot,
            run_key=manifest.run_key,
            base=base.snapshot,
            into="new",
            at=manifest.started_at,
            by=manifest.created_by,
            entities=content.published(),
        )
        own = {"snapshot": manifest.snapshot, "run_key": manifest.run_key, "created_by": manifest.created_by}
        entities = self.store.writer.count(base) + joined.added
        return joined.meta(run).model_copy(update={**own, "buckets": buckets_for(entities)})

    def _meta(self, content: Content, edges: Edges) -> tuple[SnapshotMeta, dict[str, Histogram]]:
        """What the store will say of the snapshot; and its scores counted on the edges of another one."""
        manifest, counts = self.manifest, self.manifest.counts
        own = decile_edges(content.scores(), manifest.columns, counts.scored)
        counted, compared = histograms_on(content.scores(), manifest.columns, [own, edges])
        empty = Histogram(edges=(), counts=(0,))
        published = content.published()
        meta = SnapshotMeta(
            snapshot=manifest.snapshot,
            model=manifest.model,
            model_version=manifest.model_version,
            bundle_digest=manifest.bundle_digest,
            golden_digest=manifest.golden_digest or "",
            outputs=manifest.outputs,
            fields=manifest.fields,
            buckets=buckets_for(published),
            published=published,
            input_rows=counts.input,
            scored=counts.scored,
            rejected=counts.rejected,
            duplicate=counts.duplicate,
            scored_at=manifest.started_at,
            data_as_of=manifest.data_as_of,
            run_key=manifest.run_key,
            created_by=manifest.created_by,
            histograms=tuple(counted.get(column, empty) for column in manifest.columns),
        )
        return meta, compared

    def _write(self, meta: SnapshotMeta, entities: _Entities) -> None:
        self.store.writer.begin(meta)
        self.step("snapshot begun")
        with self._file().beside(meta, self.renew) as beside:
            with ahead(entities.batches()) as ready:
                written = self.store.writer.fill(meta, self._told(ready, beside))
            self._verify(meta, max(written, meta.published), entities.samples)
        self.step("verified")

    def _told(self, batches: Iterator[PublishBatch], beside: Channel[PublishBatch]) -> Iterator[PublishBatch]:
        for batch in batches:
            beside.put(batch)
            yield batch
            self.step("slab written")
        beside.end()

    def _file(self) -> SnapshotFileStep:
        return SnapshotFileStep(self.run_dir, self.manifest, self.store, self.means)

    def _verify(self, meta: SnapshotMeta, entities: int, samples: dict[str, Lookup]) -> None:
        """The store holds what was written: as many entities, and a sample of them to the bit."""
        count = self.store.writer.count(meta)
        if count != entities:
            raise StoreCorrupt(
                f"snapshot {meta.snapshot}: the store holds {count} of {entities} entities; it evicts or loses "
                "keys: give it memory and maxmemory-policy noeviction, then run the same command again"
            )
        ids = list(samples)
        for entity_id, found in zip(ids, self.store.writer.read(meta, ids), strict=True):
            if found != samples[entity_id]:
                raise StoreCorrupt(
                    f"snapshot {meta.snapshot}: an entity reads back otherwise than written; run it again"
                )

    def _pass_gates(self, meta: SnapshotMeta, active: SnapshotMeta | None, counted: dict[str, Histogram]) -> None:
        numbers = self.failed_gates(meta, active, counted)
        if numbers is not None:
            self._hold(meta.snapshot, numbers)
        self.store.control.mark(meta.snapshot, SnapshotState.READY)
        self.step("ready")

    def _hold(self, snapshot: str, numbers: str) -> None:
        self.store.control.mark(snapshot, SnapshotState.HELD)
        self.step("held")
        self.end(RunState.HELD, numbers, 0.0)
        raise SnapshotHeld(
            f"snapshot {snapshot} is held and the old one stays active: {numbers}; if that is right: "
            f"forescore promote {snapshot} --force"
        )


def retirable(store: Store, keep: int) -> list[str]:
    """The snapshots beyond the ``keep`` most recently active ones; never one that is active, held or half-written."""
    listed = store.catalogue.snapshots()
    ready = {row.meta.snapshot for row in listed if row.state is SnapshotState.READY and not row.active}
    promoted = list(dict.fromkeys(flip.snapshot for flip in store.catalogue.history()))
    ordered = [name for name in promoted if name in ready] + sorted(ready - set(promoted), reverse=True)
    unfinished = [row.meta.snapshot for row in listed if row.state is SnapshotState.RETIRING]
    return [*ordered[keep - 1 :], *unfinished]
