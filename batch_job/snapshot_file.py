"""The file of a snapshot, as a step of its publication.

    write beside the parts, under the name of what comes next -> (promote) -> rename -> record which file is active

It is a spare: where it cannot be written, the snapshot is published without it, and a line says why. It says the same
as the store. So a whole run's is made of its parts, and that of a copy or an update of what the store has then.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog

from batch_job.atomic import sync_folder, write_atomic
from batch_job.content import Content, Slabs
from batch_job.into import Into
from batch_job.job import Means
from batch_job.manifest import RunManifest
from batch_job.pipeline import Channel, aside
from batch_job.publication import active_snapshot, resident
from batch_job.snapshot_file_writer import write_snapshot_file
from shared.errors import SnapshotFileCorrupt
from shared.snapshot import SnapshotMeta
from shared.snapshot_file import open_snapshot_file
from shared.snapshot_file_layout import FILE, NEXT
from shared.snapshot_file_record import Entry, Record, find_file, read_record, record_path
from shared.store.interfaces import PublishBatch, SnapshotWriter, Store
from shared.telemetry import Logger

_log: Logger = structlog.get_logger()

BUCKETS_READ = 1000
_LOCK = ".active.lock"


@dataclass(frozen=True, slots=True)
class SnapshotFileStep:
    """Leaves the file of the snapshot that a run makes or changes."""

    run_dir: Path
    manifest: RunManifest
    store: Store
    means: Means

    def beside(self, meta: SnapshotMeta, renew: Callable[[], None]) -> AbstractContextManager[Channel[PublishBatch]]:
        """Takes what goes into the store, and writes the file of all of it while the store is filled."""

        def work(batches: Channel[PublishBatch]) -> None:
            def going() -> None:
                batches.require_going()
                renew()

            with self._spare(meta.snapshot):
                write_snapshot_file(self.run_dir / NEXT, meta, batches, self._stepping(going))

        return aside(work)

    def _stepping(self, renew: Callable[[], None]) -> Callable[[str], None]:
        def step(name: str) -> None:
            renew()
            self.means.observer.step(name)

        return step

    def prepare(self, snapshot: str, renew: Callable[[], None] = lambda: None) -> None:
        """Writes the file, if it is not there, for the snapshot as the store has it now; ``renew``: its lease."""
        row = resident(self.store, snapshot)
        if row is None or self._path_of(row.meta) is not None:
            return
        with self._spare(snapshot):
            batches = self._batches(row.meta, renew)
            write_snapshot_file(self.run_dir / NEXT, row.meta, batches, self._stepping(renew))

    def record(self, snapshot: str) -> None:
        """Puts the file in its place and records it as that of the active snapshot; writes it, if it is not there."""
        self.prepare(snapshot)
        row = resident(self.store, snapshot)
        with self._spare(snapshot):
            if row is not None and self._path_of(row.meta) == self.run_dir / NEXT:
                (self.run_dir / NEXT).replace(self.run_dir / FILE)
                sync_folder(self.run_dir)
                self.means.observer.step("snapshot file in place")
            record_active(self.means.settings.runs_folder, self.manifest.model, self.store, self.run_dir)
        self.means.observer.step("snapshot file recorded")

    def restore(self) -> None:
        """Writes the file anew, and the record, if the run's snapshot is active and has none: it was removed."""
        active = active_snapshot(self.store)
        if active is None or active.snapshot != self.manifest.joined:
            return
        recorded = read_record(self.means.settings.runs_folder, self.manifest.model).active
        if recorded != _entry(self.means.settings.runs_folder, active, self.run_dir) or recorded.file is None:
            self.record(active.snapshot)

    @contextmanager
    def _spare(self, snapshot: str) -> Iterator[None]:
        """A disk that is full or cannot be written costs the file, and not the publication."""
        try:
            yield
        except OSError as error:
            _log.warning(
                "snapshot file not written: nothing stands in for the store while it is down; make room, and run the "
                "same command again",
                snapshot=snapshot,
                path=error.filename or str(self.run_dir / NEXT),
                reason=(error.strerror or "unknown").lower(),
            )

    def _path_of(self, meta: SnapshotMeta) -> Path | None:
        """The file here that says the same as the store."""
        for path in (self.run_dir / FILE, self.run_dir / NEXT):
            with suppress(SnapshotFileCorrupt), open_snapshot_file(path) as opened:
                if opened.meta == meta:
                    return path
        return None

    def _batches(self, meta: SnapshotMeta, renew: Callable[[], None]) -> Iterator[PublishBatch]:
        if self.manifest.into in {Into.NEW, Into.ACTIVE}:
            return batches_of_store(meta, self.store.writer, renew)
        return batches_of_parts(Content(self.run_dir, self.manifest), meta, renew)


def batches_of_parts(content: Content, meta: SnapshotMeta, renew: Callable[[], None]) -> Iterator[PublishBatch]:
    """The entities of a run that stands alone."""
    content.require_unchanged()
    yield from Slabs(content, meta, renew=renew).batches()


def batches_of_store(meta: SnapshotMeta, writer: SnapshotWriter, renew: Callable[[], None]) -> Iterator[PublishBatch]:
    """All that the store has of the snapshot, online scores too."""
    for first in range(0, meta.buckets, BUCKETS_READ):
        yield writer.read_buckets(meta, range(first, min(first + BUCKETS_READ, meta.buckets)))
        renew()


def record_active(runs: Path, model: str, store: Store, first: Path | None = None) -> Record | None:
    """Records which file has the snapshot that is active now; ``first``: the folder to look in before all others.

    None where this host has no such folder. One process at a time asks the store and writes: the last one knows best.
    """
    if first is not None:
        runs.mkdir(parents=True, exist_ok=True)
    if not runs.is_dir():
        return None
    with _locked(runs):
        active = store.catalogue.active()
        listed = {row.meta.snapshot for row in store.catalogue.snapshots()}
        kept = {digest: one for digest, one in read_record(runs, model).newest.items() if one.snapshot in listed}
        if active is None:
            record = Record(newest=kept)
        else:
            entry = _entry(runs, active.meta, first)
            record = Record(active=entry, newest={**kept, active.meta.bundle_digest: entry})
        text = orjson.dumps(record.model_dump(), option=orjson.OPT_INDENT_2) + b"\n"
        write_atomic(record_path(runs, model), lambda file: file.write(text))
    return record


def _entry(runs: Path, active: SnapshotMeta, first: Path | None) -> Entry:
    found = find_file(runs, active, () if first is None else (first / FILE, first / NEXT))
    if found is None:
        return Entry(snapshot=active.snapshot, file=None)
    place = found.resolve()
    inside = place.is_relative_to(runs.resolve())
    return Entry(snapshot=active.snapshot, file=str(place.relative_to(runs.resolve()) if inside else place))


@contextmanager
def _locked(runs: Path) -> Iterator[None]:
    descriptor = os.open(runs / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
