"""A run's scores go into the active snapshot itself: readers see the old or the new value of each entity.

    announce in the metadata -> write in slabs -> read a sample back -> say in the metadata that it is whole

What is announced has the counts that will hold at the end, so that a killed update is known as such to everybody, and
the same call again ends it: each of its steps may be done twice. While the lease is held nobody can move the pointer;
it is asked for at every slab. Who lost it meanwhile has written at most one slab into a snapshot that may not be active
any more, and says so.
"""

from dataclasses import dataclass

from batch_job.content import Content, Slabs
from batch_job.copying import packing
from batch_job.gates import histograms_of
from batch_job.joining import require_joinable, required
from batch_job.lease import whoami
from batch_job.manifest import RunManifest, RunState
from batch_job.publication import Publication, active_snapshot
from batch_job.snapshot_file import SnapshotFileStep
from batch_job.union import union
from shared.errors import Fenced, SnapshotHeld, StoreCorrupt
from shared.snapshot import Found, SnapshotMeta, SubsetRun
from shared.store import refusals


@dataclass(slots=True)
class Update(Publication):
    """Brings the run's entities into the active snapshot."""

    written: int = 0

    def finish(self) -> RunManifest:
        """Does what is not done yet. SnapshotHeld, with nothing written, if the result would not pass the gates."""
        started = self.means.stopwatch.now()
        active = required(active_snapshot(self.store), self.manifest.model)
        if not has_run(active, self.manifest):
            require_joinable(active, self.manifest)
            content = Content(self.run_dir, self.manifest)
            content.require_unchanged()
            meta = self._announced(active, content)
            try:
                self._write(meta, content)
                self.store.control.amend(_finished(meta), self.lease)
            except Fenced:
                raise Fenced(
                    f"snapshot {meta.snapshot}: the lease was lost in the middle of its update, to a rollback or "
                    f"another run: {self.written} of {content.published()} entities were written into it, whether or "
                    "not it is still active; run the same command again"
                ) from None
        self.step("whole")
        self.note(base=active.snapshot)
        SnapshotFileStep(self.run_dir, self.manifest, self.store, self.means).record(active.snapshot)
        return self.end(RunState.UPDATED, None, self.means.stopwatch.now() - started)

    def _announced(self, active: SnapshotMeta, content: Content) -> SnapshotMeta:
        run = self._record(active, content)
        if active.unfinished is not None:
            return active.model_copy(update={"subsets": (*active.subsets[:-1], run)})
        meta = union(active, content, self.store.writer).meta(run)
        self.step("surveyed")
        expected = histograms_of(active)
        numbers = self.failed_gates(meta, active, {c: h for c, h in histograms_of(meta).items() if c in expected})
        if numbers is not None:
            self.note(base=active.snapshot)
            self.end(RunState.HELD, numbers, 0.0)
            raise SnapshotHeld(
                f"snapshot {active.snapshot} is not updated, nothing was written: {numbers}; to look at what it would "
                "become: the same command with --into new"
            )
        self.note(state=RunState.PUBLISHING, base=active.snapshot)
        self.store.control.amend(meta, self.lease)
        self.step("update announced")
        return meta

    def _record(self, active: SnapshotMeta, content: Content) -> SubsetRun:
        manifest = self.manifest
        return SubsetRun(
            run=manifest.snapshot,
            run_key=manifest.run_key,
            base=active.snapshot,
            into="active",
            at=manifest.started_at,
            by=whoami(),
            entities=content.published(),
            whole=False,
        )

    def _write(self, meta: SnapshotMeta, content: Content) -> None:
        slabs = Slabs(content, packing(meta, content), renew=self.renew)
        for batch in slabs.batches():
            written = self.store.writer.replace(meta, batch)
            self.written += written
            if written != len(batch):
                self.renew()
                raise refusals.bucket_gone(meta.snapshot)
            self.step("slab written")
        ids = list(slabs.samples)
        for entity_id, found in zip(ids, self.store.writer.read(meta, ids), strict=True):
            rescored = isinstance(found, Found) and found.online  # by the service, since: it is in use
            if found != slabs.samples[entity_id] and not rescored:
                raise StoreCorrupt(
                    f"snapshot {meta.snapshot}: an entity reads back otherwise than written; run it again"
                )
        self.step("verified")


def has_run(active: SnapshotMeta, manifest: RunManifest) -> bool:
    """Whether all of the run's scores are in the snapshot."""
    return any(run.run == manifest.snapshot and run.whole for run in active.subsets)


def is_updated(active: SnapshotMeta | None, manifest: RunManifest) -> bool:
    """Whether an update ended, and its scores are in the active snapshot or older than all of that."""
    if active is None or manifest.state is not RunState.UPDATED:
        return False
    return has_run(active, manifest) or manifest.started_at < active.scored_at


def _finished(meta: SnapshotMeta) -> SnapshotMeta:
    *before, last = meta.subsets
    return meta.model_copy(update={"subsets": (*before, last.model_copy(update={"whole": True}))})
