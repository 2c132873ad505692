"""Small snapshot files for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from support.snapshots import publish_batch, snapshot_meta

from batch_job.snapshot_file import batches_of_store, record_active
from batch_job.snapshot_file_writer import write_snapshot_file
from shared.codes import Code
from shared.snapshot import SnapshotMeta
from shared.snapshot_file_layout import FILE
from shared.store.interfaces import Store


def write_file(
    path: Path,
    scores: Mapping[str, float | Sequence[float]],
    rejected: Mapping[str, tuple[Code, int | None]] | None = None,
    *,
    meta: SnapshotMeta | None = None,
    batch_rows: int = 1 << 17,
) -> SnapshotMeta:
    """Writes a snapshot's file; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = meta or snapshot_meta(entities=len(scores) + len(rejected or {}))
    batch = publish_batch(known, scores, rejected)
    write_snapshot_file(path, known, [batch], batch_rows=batch_rows)
    return known


def leave_file(runs: Path, store: Store, meta: SnapshotMeta, run: str = "run") -> Path:
    """Writes the file of a snapshot that is in the store, and records what is active, as a publication does."""
    path = runs / run / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_snapshot_file(path, meta, batches_of_store(meta, store.writer, lambda: None))
    record_active(runs, meta.model, store, path.parent)
    return path
