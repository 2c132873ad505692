"""What every way of publishing shares: its steps, its gates, its end."""

from dataclasses import dataclass
from pathlib import Path

from batch_job.gates import gates
from batch_job.job import Means
from batch_job.manifest import RunManifest, RunState, changed, write_manifest
from batch_job.report import write_report
from shared.errors import SnapshotNotReady, StoreCorrupt
from shared.snapshot import Histogram, Lease, Listed, SnapshotMeta, SnapshotState
from shared.store.interfaces import Store


@dataclass(slots=True)
class Publication:
    """One process's work at bringing a run's scores into the store, under a lease."""

    run_dir: Path
    manifest: RunManifest
    store: Store
    lease: Lease
    means: Means

    def renew(self) -> None:
        """Fenced if the lease was lost."""
        self.store.leases.renew(self.lease)

    def failed_gates(
        self, meta: SnapshotMeta, active: SnapshotMeta | None, counted: dict[str, Histogram]
    ) -> str | None:
        """The gates that do not pass, with their numbers; None if all do."""
        found = gates(meta, active, counted, self.means.settings.gates)
        failed = [f"{gate.name}: {gate.numbers}" for gate in found if not gate.passed]
        return "; ".join(failed) or None

    def note(self, **fields: object) -> None:
        """Changes the manifest, on disk too."""
        self.manifest = write_manifest(self.run_dir, changed(self.manifest, **fields))

    def end(self, state: RunState, reason: str | None, seconds: float) -> RunManifest:
        """The report, and the manifest's last word."""
        spent = {**self.manifest.seconds, "publish": seconds}
        finished = changed(
            self.manifest, state=state, reason=reason, seconds=spent, finished_at=int(self.means.clock.now())
        )
        write_report(self.run_dir, finished)
        self.step("reported")
        write_manifest(self.run_dir, finished)
        self.step(state.value)
        return finished

    def step(self, name: str) -> None:
        """Tells the observer."""
        self.means.observer.step(name)


def active_snapshot(store: Store) -> SnapshotMeta | None:
    """What cannot be read cannot be compared with or joined, and is best replaced."""
    try:
        active = store.catalogue.active()
    except StoreCorrupt:
        return None
    return None if active is None else active.meta


def resident(store: Store, snapshot: str) -> Listed | None:
    """The snapshot's row in the store's list."""
    return next((row for row in store.catalogue.snapshots() if row.meta.snapshot == snapshot), None)


def state_of(store: Store, snapshot: str) -> SnapshotState | None:
    """SnapshotNotReady if the snapshot is being removed."""
    row = resident(store, snapshot)
    if row is not None and row.state is SnapshotState.RETIRING:
        raise SnapshotNotReady(f"snapshot {snapshot} was retired; --force scores and publishes anew")
    return None if row is None else row.state
