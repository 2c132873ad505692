"""A run's parts become a snapshot, and the snapshot, if it passes, the active one.

    claim the version -> lease -> begin -> write in slabs -> verify -> gates -> ready -> promote -> retire the old

Killed anywhere, the same call again ends the same way: readers see the old snapshot until the one flip.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from batch_job.content import Content, Slabs
from batch_job.gates import Gate, gates, histograms_of
from batch_job.histograms import decile_edges, histograms
from batch_job.job import Means
from batch_job.lease import held_lease, whoami
from batch_job.lock import run_lock
from batch_job.manifest import RunManifest, RunState, changed, read_manifest, write_manifest
from batch_job.report import write_report
from shared.errors import (
    RunError,
    SnapshotHeld,
    SnapshotNotReady,
    StoreCorrupt,
)
from shared.layout import buckets_for
from shared.snapshot import Histogram, Lease, SnapshotMeta, SnapshotState
from shared.store.interfaces import Store


def publish_run(run_dir: Path, store: Store, means: Means, lease: Lease | None = None) -> RunManifest:
    """Publishes a scored run and promotes its snapshot; returns the manifest as it is then.

    ``lease``: the one that the whole run holds already; without it, one is acquired. SnapshotHeld if a gate holds it
    back, LeaseHeld if somebody else publishes, Fenced if they took over meanwhile. A run that was promoted and is still
    in the store is left alone; one that the store lost is published again.
    """
    with run_lock(run_dir):
        manifest = read_manifest(run_dir)
        if manifest is None or not manifest.done or manifest.golden_digest is None:
            raise RunError(f"{run_dir}: holds no scored run; run the backfill first")
        state = _state(store, manifest.snapshot)
        if manifest.state is RunState.PROMOTED and state is not None:
            return manifest
        store.catalogue.claim(manifest.model_version, manifest.bundle_digest)
        means.observer.step("version claimed")
        with _leased(store, manifest.snapshot, means) if lease is None else nullcontext(lease) as held:
            means.observer.step("lease acquired")
            manifest = write_manifest(run_dir, changed(manifest, state=RunState.PUBLISHING, reason=None))
            means.observer.step("publishing")
            return _Publication(run_dir, manifest, store, held, means).finish()


def _leased(store: Store, snapshot: str, means: Means) -> AbstractContextManager[Lease]:
    seconds = means.settings.gates.lease_seconds
    return held_lease(store.leases, snapshot, seconds, stopwatch=means.stopwatch, sleep=means.sleep)


@dataclass(slots=True)
class _Publication:
    run_dir: Path
    manifest: RunManifest
    store: Store
    lease: Lease
    means: Means

    def finish(self) -> RunManifest:
        """Does what is not done yet."""
        started = self.means.stopwatch.now()
        snapshot = self.manifest.snapshot
        active = _active(self.store)
        if active is None or active.snapshot != snapshot:
            content = Content(self.run_dir, self.manifest)
            content.require_unchanged()
            meta = self._meta(content)
            if _state(self.store, snapshot) not in {SnapshotState.READY, SnapshotState.HELD}:
                self._write(content, meta)
            self._pass_gates(content, meta, active)
            self.store.leases.renew(self.lease)
            self.store.control.promote(snapshot, self.lease, by=whoami())
            self._step("promoted")
        for old in retirable(self.store, self.means.settings.gates.keep):
            self.store.control.retire(old)
            self._step("old snapshot retired")
        return self._end(RunState.PROMOTED, None, self.means.stopwatch.now() - started)

    def _meta(self, content: Content) -> SnapshotMeta:
        manifest, counts = self.manifest, self.manifest.counts
        edges = decile_edges(content.tables(), manifest.columns, counts.scored)
        counted = histograms(content.tables(), manifest.columns, edges)
        empty = Histogram(edges=(), counts=(0,))
        published = content.published()
        return SnapshotMeta(
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

    def _write(self, content: Content, meta: SnapshotMeta) -> None:
        self.store.writer.begin(meta)
        self._step("snapshot begun")
        slabs = Slabs(content, meta, renew=lambda: self.store.leases.renew(self.lease))
        for batch in slabs.batches():
            self.store.writer.write(meta, batch)
            self._step("slab written")
        self._verify(meta, slabs)
        self._step("verified")

    def _verify(self, meta: SnapshotMeta, slabs: Slabs) -> None:
        """The store holds what was written: as many entities, and a sample of them to the bit."""
        count = self.store.writer.count(meta)
        if count != meta.published:
            raise StoreCorrupt(
                f"snapshot {meta.snapshot}: the store holds {count} of {meta.published} entities; it evicts or loses "
                "keys: give it memory and maxmemory-policy noeviction, then run the same command again"
            )
        ids = list(slabs.samples)
        for entity_id, found in zip(ids, self.store.writer.read(meta, ids), strict=True):
            if found != slabs.samples[entity_id]:
                raise StoreCorrupt(
                    f"snapshot {meta.snapshot}: an entity reads back otherwise than written; run it again"
                )

    def _pass_gates(self, content: Content, meta: SnapshotMeta, active: SnapshotMeta | None) -> None:
        expected = {} if active is None else histograms_of(active)
        edges = {column: histogram.edges for column, histogram in expected.items()}
        counted = histograms(content.tables(), meta.columns, edges)
        found = gates(meta, active, counted, self.means.settings.gates)
        failed = [gate for gate in found if not gate.passed]
        if failed:
            self._hold(meta.snapshot, failed)
        self.store.control.mark(meta.snapshot, SnapshotState.READY)
        self._step("ready")

    def _hold(self, snapshot: str, failed: list[Gate]) -> None:
        numbers = "; ".join(f"{gate.name}: {gate.numbers}" for gate in failed)
        self.store.control.mark(snapshot, SnapshotState.HELD)
        self._step("held")
        self._end(RunState.HELD, numbers, 0.0)
        raise SnapshotHeld(
            f"snapshot {snapshot} is held and the old one stays active: {numbers}; if that is right: "
            f"forescore promote {snapshot} --force"
        )

    def _end(self, state: RunState, reason: str | None, seconds: float) -> RunManifest:
        spent = {**self.manifest.seconds, "publish": seconds}
        finished = changed(
            self.manifest, state=state, reason=reason, seconds=spent, finished_at=int(self.means.clock.now())
        )
        write_report(self.run_dir, finished)
        self._step("reported")
        write_manifest(self.run_dir, finished)
        self._step(state.value)
        return finished

    def _step(self, name: str) -> None:
        self.means.observer.step(name)


def retirable(store: Store, keep: int) -> list[str]:
    """The snapshots beyond the ``keep`` most recently active ones; never one that is active, held or half-written."""
    listed = store.catalogue.snapshots()
    ready = {row.meta.snapshot for row in listed if row.state is SnapshotState.READY and not row.active}
    promoted = list(dict.fromkeys(flip.snapshot for flip in store.catalogue.history()))
    ordered = [name for name in promoted if name in ready] + sorted(ready - set(promoted), reverse=True)
    unfinished = [row.meta.snapshot for row in listed if row.state is SnapshotState.RETIRING]
    return [*ordered[keep - 1 :], *unfinished]


def _active(store: Store) -> SnapshotMeta | None:
    try:
        active = store.catalogue.active()
    except StoreCorrupt:  # what cannot be read cannot be compared with, and is best replaced
        return None
    return None if active is None else active.meta


def _state(store: Store, snapshot: str) -> SnapshotState | None:
    states = {row.meta.snapshot: row.state for row in store.catalogue.snapshots()}
    if states.get(snapshot) is SnapshotState.RETIRING:
        raise SnapshotNotReady(f"snapshot {snapshot} was retired; --force scores and publishes anew")
    return states.get(snapshot)
