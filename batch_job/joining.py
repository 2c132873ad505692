"""Where the scores of a run go, and that they fit there."""

from batch_job.into import Into
from batch_job.job import Job
from batch_job.manifest import RunManifest, RunState
from shared.bundle import Bundle
from shared.errors import MixedVersions, RunError, SettingsError, SnapshotNotFound, SnapshotNotReady
from shared.snapshot import SnapshotMeta


def destination(told: Into | None, job: Job, active: SnapshotMeta | None, known: RunManifest | None) -> Into:
    """Where a run is to go, before anything is scored: as told, or as it began (``known``, what its folder says).

    A whole table makes a snapshot of its own. SettingsError where a part of one must be told; RunError if the run went
    elsewhere; SnapshotNotFound or MixedVersions if there is nothing that its scores could join.
    """
    begun = None if known is None or known.run_key != job.key else known
    whole = job.source.selection.everything
    into = told or (begun.into if begun is not None else None)
    if into is None:
        into = _untold(job, active)
    elif into is Into.NEW and whole:
        into = Into.ALONE
    if begun is not None:
        _require_not_elsewhere(begun, into)
    if into is not Into.ALONE and not (begun is not None and begun.done):
        require_version(required(active, job.bundle.name), job.bundle)
    return into


def required(active: SnapshotMeta | None, model: str) -> SnapshotMeta:
    """SnapshotNotFound if there is none."""
    if active is None:
        raise SnapshotNotFound(
            f"model {model} has no active snapshot that the scores could join; backfill the whole table first, or let "
            "these rows stand alone: --into alone"
        )
    return active


def require_version(active: SnapshotMeta, bundle: Bundle) -> None:
    """MixedVersions if the bundle is not that of the active snapshot."""
    if active.model_version != bundle.version:
        raise MixedVersions(_mixed(active, f"the bundle is {bundle.name} {bundle.version}"))
    if active.bundle_digest != bundle.digest:
        raise MixedVersions(_mixed(active, "the bundle has another digest"))


def require_joinable(active: SnapshotMeta, manifest: RunManifest) -> None:
    """MixedVersions, SnapshotNotReady or RunError if the run's scores do not belong beside the snapshot's."""
    if active.model_version != manifest.model_version:
        raise MixedVersions(_mixed(active, f"the run is of {manifest.model} {manifest.model_version}"))
    if active.bundle_digest != manifest.bundle_digest:
        raise MixedVersions(_mixed(active, "the run's bundle has another digest"))
    if active.golden_digest != manifest.golden_digest:
        raise MixedVersions(_mixed(active, "the golden rows score to other bits where the run was scored"))
    left = active.unfinished
    if left is not None and (left.run_key != manifest.run_key or manifest.into is not Into.ACTIVE):
        raise SnapshotNotReady(
            f"snapshot {active.snapshot}: run {left.run_key[:12]} of {left.by} was interrupted while it wrote into it; "
            "run its command again first, or backfill the whole table"
        )
    if manifest.started_at < active.scored_at:
        raise RunError(
            f"{manifest.output_path}: its scores are older than those of the active snapshot {active.snapshot}, whose "
            "place they would take; --force scores anew"
        )


def _untold(job: Job, active: SnapshotMeta | None) -> Into:
    own = active is not None and active.run_key == job.key and not active.subsets
    if job.source.selection.everything or active is None or own:
        return Into.ALONE
    raise SettingsError(
        f"--into: these rows are a part of the table, and snapshot {active.snapshot} is active; say where they go: new "
        "(a copy of it, with them replaced), active (into it, in place), or alone (a snapshot of nothing else)"
    )


def _require_not_elsewhere(begun: RunManifest, into: Into) -> None:
    nothing_written = begun.state is RunState.HELD and begun.into is Into.ACTIVE
    if begun.into is not None and begun.into is not into and not nothing_written:
        raise RunError(
            f"{begun.output_path}: this run was begun with --into {begun.into.value} (it is {begun.state.value}); "
            "leave that as it was, or start anew with --force"
        )


def _mixed(active: SnapshotMeta, difference: str) -> str:
    return (
        f"snapshot {active.snapshot} is of {active.model} {active.model_version}, and {difference}: a snapshot has the "
        "scores of one model; backfill the whole table, or use what the active snapshot was made with"
    )
