"""``forescore schedule --once``: one night's run, here and now, with the exit codes of a backfill."""

import sys
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import orjson
import typer

from batch_job.backfill import tell
from batch_job.job import Job, Means
from batch_job.manifest import RunManifest, read_manifest
from batch_job.night_run import Covered, run_night
from batch_job.nightly import Nightly
from batch_job.outcome import BUSY, DONE, FAILED, HELD, SKIPPED
from batch_job.priority import give_way
from batch_job.progress import Silent, observer_for
from batch_job.report import report
from batch_job.run_log import RunLine
from batch_job.stopping import stopping_in_order
from shared.clock import MonotonicClock
from shared.errors import ForescoreError, LeaseHeld, SnapshotHeld
from shared.settings import Settings
from shared.store.inspection import warn_of_store


def once(nightly: Nightly, settings: Settings, since: datetime, *, only_if_open: bool, as_json: bool) -> None:
    """Runs, and says what came of it: in words, or as one JSON line for the schedule. Errors are raised after that."""
    give_way(settings.batch.nice)
    observer, shown = (
        (Silent(), nullcontext()) if as_json else observer_for(sys.stderr, MonotonicClock(), as_json=False)
    )
    means = Means(settings=settings, observer=observer)
    line = None if only_if_open else RunLine(settings, means.stopwatch)  # the schedule logs the runs that it starts
    if not only_if_open:
        warn_of_store(settings)
    places: list[tuple[str, Path]] = []

    def begun(job: Job, out: Path) -> None:
        places.append((job.key, out))

    try:
        with shown, stopping_in_order():
            found = run_night(nightly, means, since, only_if_open=only_if_open, begun=begun)
    except BaseException as error:
        if isinstance(error, ForescoreError):
            _tell(error, read_manifest(places[0][1]) if places else None, as_json=as_json)
        if line is not None and places:
            line.failed(*places[0], error)
        raise
    _tell(found, None, as_json=as_json)
    if line is not None and isinstance(found, RunManifest):
        line.done(found)


def _tell(found: RunManifest | Covered | ForescoreError, known: RunManifest | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(orjson.dumps({"event": "finished", **_facts(found, known)}).decode())
        return
    match found:
        case RunManifest():
            tell(found, as_json=False)
        case Covered(snapshot=snapshot):
            typer.echo(f"nothing to do: snapshot {snapshot} was scored since the run was due")
        case SnapshotHeld() if known is not None:
            tell(known, as_json=False)


def _facts(found: RunManifest | Covered | ForescoreError, known: RunManifest | None) -> dict[str, object]:
    match found:
        case RunManifest():
            return {**report(found), "outcome": DONE}
        case Covered(snapshot=snapshot):
            return {"snapshot": snapshot, "outcome": SKIPPED}
    outcome = HELD if isinstance(found, SnapshotHeld) else BUSY if isinstance(found, LeaseHeld) else FAILED
    return {**(report(known) if known is not None else {}), "reason": str(found), "outcome": outcome}
