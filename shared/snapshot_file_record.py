"""Which file has the active snapshot: a small record of each model in the folder of all runs, and the files there.

Whoever moves the pointer writes the record after it, from what the store says then. It is for those who cannot ask the
store: a service that knows the pointer looks for the file of that very snapshot instead.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from shared.errors import SnapshotFileCorrupt
from shared.snapshot import SnapshotMeta
from shared.snapshot_file import SnapshotFile, open_snapshot_file
from shared.snapshot_file_layout import PATTERN


class Entry(BaseModel):
    """A promoted snapshot. ``file``: below the folder of the runs, or from the root; None: it has none here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    snapshot: str
    file: str | None


class Record(BaseModel):
    """``active``: the snapshot that was active last. ``newest``: for each bundle, by its digest, that of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    active: Entry | None = None
    newest: dict[str, Entry] = {}


def record_path(runs: Path, model: str) -> Path:
    """Where a model's record lies: ``runs/active-churn.json``."""
    return runs / f"active-{model}.json"


def read_record(runs: Path, model: str) -> Record:
    """What is recorded; nothing if the record is not there or does not read."""
    try:
        return Record.model_validate_json(record_path(runs, model).read_bytes())
    except (OSError, ValidationError):
        return Record()


def has_what_the_store_has(file: SnapshotMeta, store: SnapshotMeta) -> bool:
    """Whether a file may stand for a snapshot: it says the same as the store, or what it said before an update that has
    not ended."""
    if file == store:
        return True
    if file.snapshot != store.snapshot or store.unfinished is None:
        return False
    before = store.subsets[:-1]
    return file.subsets[len(file.subsets) - len(before) :] == before and len(file.subsets) - len(before) in {0, 1}


def find_file(runs: Path, wanted: SnapshotMeta, first: Sequence[Path] = ()) -> Path | None:
    """The file that has what the store has of the snapshot; ``first``: those to look at before all others."""
    for path in _candidates(runs, first):
        with suppress(SnapshotFileCorrupt), open_snapshot_file(path) as opened:
            if has_what_the_store_has(opened.meta, wanted):
                return path
    return None


def open_newest(runs: Path, model: str, bundle_digest: str) -> SnapshotFile | None:
    """The file of the bundle's newest promoted snapshot, if there is one; SnapshotFileCorrupt if it is not that."""
    entry = read_record(runs, model).newest.get(bundle_digest)
    if entry is None or entry.file is None:
        return None
    opened = open_snapshot_file(runs / entry.file)
    meta = opened.meta
    if (meta.model, meta.bundle_digest, meta.snapshot) != (model, bundle_digest, entry.snapshot):
        opened.close()
        raise SnapshotFileCorrupt(f"{runs / entry.file}: not the file of {entry.snapshot}; publish its run again")
    return opened


def _candidates(runs: Path, first: Sequence[Path]) -> Iterator[Path]:
    yield from first
    yield from (path for path in sorted(runs.glob(PATTERN), reverse=True) if path not in first)
