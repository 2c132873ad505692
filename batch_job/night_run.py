"""One night's run: what ``forescore schedule`` starts in a process of its own, and ``--once`` does in this one."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from batch_job.backfill import perform_under
from batch_job.files import find_files
from batch_job.gates import RejectionLimit
from batch_job.job import Job, Means, open_job
from batch_job.manifest import FILE as MANIFEST
from batch_job.manifest import RunManifest, RunState, read_manifest
from batch_job.nightly import Nightly
from batch_job.nights import Standing, look, standing
from batch_job.partitions import newest_partition
from batch_job.run_lease import run_lease
from batch_job.source import Selection
from shared.bundle import load_bundle
from shared.errors import RunError
from shared.store.connect import open_store
from shared.store.interfaces import Store

_STAMP = "%Y%m%dT%H%M%SZ"
_KEY_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Covered:
    """There was nothing to do: the night's snapshot is there."""

    snapshot: str | None


def run_night(
    nightly: Nightly,
    means: Means,
    since: datetime,
    *,
    only_if_open: bool,
    begun: Callable[[Job, Path], object] = lambda _job, _out: None,
) -> RunManifest | Covered:
    """Scores the table, or its newest complete partition, publishes and promotes.

    A run of the same table and bundle that was begun ``since`` and did not end is resumed. ``only_if_open``: does
    nothing where the night that was due then needs no run any more. Errors are those of a backfill.
    """
    settings = means.settings
    job = _job(nightly, means)
    name = job.bundle.name
    with open_store(settings, name) as store:
        store.catalogue.claim(job.bundle.version, job.bundle.digest)
        with run_lease(store.leases, name, f"scheduled run {job.key[:_KEY_DIGITS]}", means) as held:
            sight = look(store)
            if only_if_open and standing(since, sight) is Standing.DONE:
                return Covered(None if sight.active is None else sight.active.snapshot)
            runs = settings.runs_folder
            out = run_folder(runs, job, since, means.clock.now())
            begun(job, out)
            allowed = RejectionLimit(nightly.max_rejected or settings.batch.max_rejected)
            manifest = perform_under(held, store, job, out, means, allowed)
            if settings.schedule.prune_runs:
                prune(runs, name, since, store)
            return manifest


def run_folder(runs: Path, job: Job, since: datetime, now: float) -> Path:
    """The folder of the unfinished run of the same key that was begun since, or a new one."""
    digits = job.key[:_KEY_DIGITS]
    for folder in _folders(runs, job.bundle.name):
        if f"-{digits}" in folder.name and _goes_on(folder, job, since):
            return folder
    stamp = datetime.fromtimestamp(now, UTC).strftime(_STAMP)
    fresh = runs / f"{job.bundle.name}-{stamp}-{digits}"
    return fresh if not fresh.exists() else _free_name(fresh)


def _goes_on(folder: Path, job: Job, since: datetime) -> bool:
    if not (folder / MANIFEST).exists():
        return True  # killed before it began: nothing is in there
    manifest = _manifest(folder)
    return (
        manifest is not None
        and manifest.run_key == job.key
        and manifest.started_at >= since.timestamp()
        and manifest.state is not RunState.PROMOTED
    )


def _free_name(taken: Path) -> Path:
    """A free name beside one that is taken."""
    number = 2
    while (free := taken.with_name(f"{taken.name}.{number}")).exists():
        number += 1
    return free


def prune(runs: Path, model: str, since: datetime, store: Store) -> list[Path]:
    """Removes the folders of the schedule's runs from before ``since`` whose snapshots the store does not have."""
    resident = {row.meta.snapshot for row in store.catalogue.snapshots()}
    removed = []
    for folder in _folders(runs, model):
        manifest = _manifest(folder)
        if manifest is not None and manifest.started_at < since.timestamp() and manifest.snapshot not in resident:
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _job(nightly: Nightly, means: Means) -> Job:
    settings = means.settings
    now = datetime.fromtimestamp(means.clock.now(), UTC)
    partition = newest_partition(find_files(nightly.table), settings.schedule, now)
    return open_job(
        nightly.table,
        bundle=load_bundle(nightly.bundle),
        chunk_size=settings.batch.chunk_size,
        order_by=nightly.order_by,
        duplicates=nightly.duplicates,
        selection=Selection(partition=partition, where=nightly.where),
    )


def _folders(runs: Path, model: str) -> list[Path]:
    """The folders that the schedule made, the newest first."""
    ours = re.compile(rf"{re.escape(model)}-\d{{8}}T\d{{6}}Z-[0-9a-f]{{{_KEY_DIGITS}}}(\.\d+)?")
    found = [folder for folder in runs.glob(f"{model}-*") if ours.fullmatch(folder.name)]
    return sorted(found, reverse=True)


def _manifest(folder: Path) -> RunManifest | None:
    try:
        return read_manifest(folder)
    except RunError:
        return None
