"""``forescore backfill``: score, publish, promote, and say so."""

import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import orjson
import typer

from batch_job.dry_run import DryRun, dry_run
from batch_job.duplicates import Duplicates
from batch_job.garbage import old_objects_left_out
from batch_job.gates import RejectionLimit
from batch_job.into import Into
from batch_job.job import Job, Means, open_job
from batch_job.joining import destination
from batch_job.manifest import RunManifest, read_manifest
from batch_job.priority import give_way
from batch_job.progress import observer_for
from batch_job.publication import active_snapshot
from batch_job.publish import publish_run
from batch_job.report import aligned, next_steps, report, summary
from batch_job.run import run_job
from batch_job.run_lease import RunLease, run_lease
from batch_job.run_log import RunLine
from batch_job.source import Selection
from batch_job.stopping import stopping_in_order
from shared.clock import MonotonicClock
from shared.errors import ForescoreError, SettingsError, SnapshotHeld
from shared.settings import Settings, load_settings
from shared.store.connect import open_store
from shared.store.inspection import warn_of_store
from shared.store.interfaces import Store
from shared.telemetry import configure_logging


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command's arguments and options."""

    bundle: Path
    table: str
    out: Path | None
    chunk_size: int | None
    order_by: str | None
    duplicates: Duplicates
    max_rejected: str | None
    selection: Selection
    data_as_of: str | None
    model_version: str | None
    into: Into | None
    publish: bool
    force: bool
    wait: bool
    as_json: bool


@old_objects_left_out()
def run(options: Options) -> None:
    """The command. What goes wrong is raised as the error that says so."""
    settings = load_settings()
    configure_logging(settings, sys.stderr)
    give_way(settings.batch.nice)
    job = _job(options, settings)
    allowed = RejectionLimit(options.max_rejected or settings.batch.max_rejected)
    out = options.out or settings.runs_folder / f"{job.bundle.name}-{job.key[:12]}"
    stream = sys.stdout if options.as_json else sys.stderr
    observer, shown = observer_for(stream, MonotonicClock(), as_json=options.as_json)
    means = Means(settings=settings, observer=observer)
    before = None
    with suppress(ForescoreError):  # what is wrong with the folder is told by the run
        before = read_manifest(out)
    line = RunLine(settings, means.stopwatch)
    try:
        with shown, stopping_in_order():
            manifest = perform(
                job,
                out,
                means,
                allowed,
                into=options.into,
                publish=options.publish,
                force=options.force,
                wait=options.wait,
            )
    except BaseException as error:
        held = read_manifest(out) if isinstance(error, SnapshotHeld) else None
        if held is not None:
            tell(held, as_json=options.as_json)
        line.failed(job.key, out, error)
        raise
    tell(manifest, as_json=options.as_json)
    if manifest != before:
        line.done(manifest)
    elif not options.as_json:
        typer.echo("done before: nothing was scored or published now; --force starts anew")


def perform(  # noqa: PLR0913 - each is an option of the command, given by name
    job: Job,
    out: Path,
    means: Means,
    allowed: RejectionLimit,
    *,
    into: Into | None = None,
    publish: bool = True,
    force: bool = False,
    wait: bool = False,
) -> RunManifest:
    """Scores, and publishes if told: what the command does, without its words.

    ``into`` must be told for a part of a table where a snapshot is active. LeaseHeld if another run of the model is at
    work, which is waited for with ``wait``.
    """
    if not publish:
        return run_job(job, out, means, allowed=allowed, force=force)
    told = partial(print, file=sys.stderr, flush=True)
    known = None if force else read_manifest(out)
    with open_store(means.settings, job.bundle.name) as store:
        destination(into, job, active_snapshot(store), known)
        store.catalogue.claim(job.bundle.version, job.bundle.digest)  # an hour's work is not begun for a refusal
        warn_of_store(means.settings)
        with run_lease(store.leases, job.bundle.name, f"run {job.key[:12]}", means, wait=wait, told=told) as held:
            goes = destination(into, job, active_snapshot(store), known)  # who was waited for may have changed it
            return perform_under(held, store, job, out, means, allowed, into=goes, force=force)


def perform_under(  # noqa: PLR0913 - the same
    held: RunLease,
    store: Store,
    job: Job,
    out: Path,
    means: Means,
    allowed: RejectionLimit,
    *,
    into: Into = Into.ALONE,
    force: bool = False,
) -> RunManifest:
    """Scores and publishes under a lease that is held for all of it."""
    watched = replace(means, observer=held.watching(means.observer))
    run_job(job, out, watched, allowed=allowed, force=force)
    return publish_run(out, store, watched, held.lease, into=into)


def preview(options: Options) -> None:
    """``--dry-run``."""
    found = dry_run(_job(options, load_settings()))
    if options.as_json:
        typer.echo(orjson.dumps({"event": "dry run", **asdict(found), "rejections": _reasons(found)}).decode())
    else:
        typer.echo(aligned(_preview_rows(found, options)))


def _job(options: Options, settings: Settings) -> Job:
    return open_job(
        options.table,
        bundle=options.bundle,
        chunk_size=settings.batch.chunk_size if options.chunk_size is None else options.chunk_size,
        order_by=options.order_by,
        duplicates=options.duplicates,
        selection=options.selection,
        model_version=options.model_version,
        data_as_of=None if options.data_as_of is None else _moment(options.data_as_of),
    )


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"--data-as-of {text[:40]!r}: a date or a time in ISO form, as 2026-11-30T02:00:00Z"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def tell(manifest: RunManifest, *, as_json: bool) -> None:
    """Says what became of a run."""
    if as_json:
        typer.echo(orjson.dumps({"event": "finished", **report(manifest)}).decode())
        return
    typer.echo(aligned(summary(manifest)))
    for step in next_steps(manifest)[:2]:
        typer.echo(f"next: {step}")


def _preview_rows(found: DryRun, options: Options) -> list[tuple[str, str]]:
    refused = options.order_by is None and options.duplicates == "refuse" and found.duplicates
    advice = ": refused without --order-by COLUMN or --duplicates last" if refused else ""
    reasons = ", ".join(map(str, found.rejections))
    key = "" if options.selection.partition is None else options.selection.partition.partition("=")[0]
    several = found.partitions
    read = [("partitions", f"{len(several):,} of {key}, {several[0]} to {several[-1]}")] if several and key else []
    missing = [("not found", f"{found.not_found:,} of the listed ids")] if found.not_found is not None else []
    return [
        ("table", options.table),
        *read,
        *missing,
        ("rows", f"{found.rows:,} in {found.chunks:,} chunks"),
        ("duplicate", f"{found.duplicates:,}{advice}"),
        (
            "checked",
            f"the first {found.checked:,} rows: " + (f"rejected {reasons}" if reasons else "all fit the schema"),
        ),
        ("store", f"about {found.store_bytes / 1024**2:,.1f} MiB for each snapshot"),
        ("written", "nothing"),
    ]


def _reasons(found: DryRun) -> list[dict[str, object]]:
    return [reason.model_dump() for reason in found.rejections]
