"""A run: a table becomes parts. ``publish`` makes a snapshot of them.

lock the folder -> manifest -> survey the ids -> chunks, in three stages at once -> account -> manifest
                                                  read and encode | forward | write
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from batch_job.atomic import writable
from batch_job.counts import Counts, total
from batch_job.duplicates import Duplicates, Survey, survey
from batch_job.forward import passes_at_once
from batch_job.garbage import old_objects_left_out
from batch_job.gates import RejectionLimit
from batch_job.job import Job, Means, new_manifest, open_job, opener
from batch_job.lock import run_lock
from batch_job.manifest import PARTS, Part, RunManifest, RunState, changed, read_manifest, write_manifest
from batch_job.parts import PartInfo, PartPlan, complete_part, part_digest, plan_parts, write_part
from batch_job.pipeline import flow
from batch_job.progress import OPENED, Observer, Silent
from batch_job.quarantine import TimedScores
from batch_job.report import write_report
from batch_job.rows import Prepared, assemble, prepare
from batch_job.source import Selection
from shared.bundle import Bundle
from shared.encode import Encoder
from shared.errors import AccountingBroken, ForescoreError, RunError, SourceError
from shared.scorer import Scored
from shared.settings import Settings, load_settings
from shared.telemetry import StageTimer

SPOOL = "spool"


@old_objects_left_out()
def score_batch(  # noqa: PLR0913 - each is an option of `forescore backfill`, given by name
    path: str | Path,
    out: str | Path,
    chunk_size: int = 50_000,
    *,
    bundle: Bundle | Path | str,
    order_by: str | None = None,
    duplicates: Duplicates = "refuse",
    partition: str | None = None,
    where: str | None = None,
    limit: int | None = None,
    entities: Path | None = None,
    model_version: str | None = None,
    max_rejected: str | None = None,
    force: bool = False,
    settings: Settings | None = None,
    observer: Observer | None = None,
) -> RunManifest:
    """Scores a table into part files under ``out``, and returns the manifest of the run.

    ``path``: a Parquet, CSV or Arrow file, a folder of them, a pattern, or an object-store URI. The same call again
    resumes what was interrupted and returns at once what is done; ``force`` starts anew. ``max_rejected``: a share
    (``"10%"``) or a count of rows above which TooManyRejected is raised; None: rejected rows are only counted.
    ``partition``: ``"dt=2026-11-01"``, or a range, ``"dt=2026-11-01..2026-11-30"``. ``model_version``: the one that the
    bundle must have, else SettingsError.
    """
    selection = Selection(partition=partition, where=where, limit=limit, entities=entities)
    job = open_job(
        path,
        bundle=bundle,
        chunk_size=chunk_size,
        order_by=order_by,
        duplicates=duplicates,
        selection=selection,
        model_version=model_version,
    )
    means = Means(settings=settings or load_settings(), observer=observer or Silent())
    allowed = None if max_rejected is None else RejectionLimit(max_rejected)
    return run_job(job, Path(out), means, allowed=allowed, force=force)


@old_objects_left_out()
def run_job(
    job: Job, out: Path, means: Means, *, allowed: RejectionLimit | None = None, force: bool = False
) -> RunManifest:
    """Does a job in a folder: begins, resumes, or finds it done. RunError if the folder holds another run."""
    with writable(out), run_lock(out):
        means.observer.step("locked")
        manifest = _begun(job, out, means, force=force)
        try:
            return _Run(job, out, means, allowed).finish(manifest)
        except ForescoreError as error:
            known = read_manifest(out) or manifest
            write_manifest(out, changed(known, state=RunState.FAILED, reason=str(error)))
            raise


def _begun(job: Job, out: Path, means: Means, *, force: bool) -> RunManifest:
    """The manifest of the run in the folder, if it is this one; else a new run's."""
    manifest = None if force else read_manifest(out)
    if manifest is not None and manifest.run_key != job.key:
        raise RunError(
            f"{out} holds another run ({manifest.model} {manifest.model_version} over {manifest.input_path}, begun "
            "with another bundle, table or options); name another folder with --out, or replace it with --force"
        )
    if manifest is None:
        manifest = write_manifest(out, new_manifest(job, out, means))
        for folder in (PARTS, SPOOL):  # after the manifest: an old manifest without its parts must never be left
            shutil.rmtree(out / folder, ignore_errors=True)
    (out / PARTS).mkdir(exist_ok=True)
    means.observer.step("begun")
    return manifest


@dataclass(slots=True)
class _Run:
    """One process's work at a run."""

    job: Job
    out: Path
    means: Means
    allowed: RejectionLimit | None
    infos: dict[int, PartInfo] = field(default_factory=dict)
    rejected: int = 0

    def finish(self, manifest: RunManifest) -> RunManifest:
        """Makes what is missing, and accounts for every row."""
        stages = StageTimer(self.means.stopwatch)
        if manifest.done and self._all_there(manifest):
            if manifest.state is RunState.SCORED:
                self._require_few_rejected(manifest.counts, manifest.counts.input)
            return manifest
        limit = self.means.settings.batch.chunk_timeout_seconds
        with TimedScores(opener(self.job, self.means), limit, passes_at_once(self.means.settings)) as scores:
            found = self._surveyed(scores, stages)
            plans = list(plan_parts(self.job.key, found.rows, self.job.chunk_size))
            self.means.observer.planned(manifest, found.rows)
            for plan in plans:
                if (info := complete_part(self.out / PARTS, plan)) is not None:
                    self._note(info, found.rows, resumed=True)
            if len(self.infos) < len(plans):
                manifest = self._certified(manifest, scores, stages)
                self._make_parts(plans, found, scores, stages)
        self.means.observer.step("parts complete")
        pa.default_memory_pool().release_unused()
        return self._account(manifest, found, stages)

    def _surveyed(self, scores: TimedScores, stages: StageTimer) -> Survey:
        with stages.stage("survey"):
            found = survey(self.job.source, self.job.duplicates, self.out / SPOOL, under_way=scores.begin)
            pa.default_memory_pool().release_unused()  # else it is held beside the chunks, and grows with the table
        if not found.rows:
            raise SourceError(
                f"{self.job.source.files.table}: no rows are left to score; look at the table and the filters"
            )
        return found

    def _all_there(self, manifest: RunManifest) -> bool:
        plans = plan_parts(self.job.key, manifest.counts.input, self.job.chunk_size)
        return all(complete_part(self.out / PARTS, plan) is not None for plan in plans)

    def _certified(self, manifest: RunManifest, scores: TimedScores, stages: StageTimer) -> RunManifest:
        """Parts of one run have the bits of one host kind."""
        with stages.stage("open"):
            digest = scores.opened.golden_digest
        if manifest.golden_digest is not None and manifest.golden_digest != digest:
            raise RunError(
                f"{self.out}: this run began where the golden rows score to other bits (another processor, device, "
                "engine or torch); go on there, or start anew with --force"
            )
        manifest = write_manifest(
            self.out, changed(manifest, state=RunState.SCORING, reason=None, golden_digest=digest)
        )
        self.means.observer.step(OPENED)
        return manifest

    def _make_parts(self, plans: list[PartPlan], found: Survey, scores: TimedScores, stages: StageTimer) -> None:
        schema, version = self.job.bundle.schema, self.job.bundle.version

        def forward(prepared: Prepared) -> tuple[Prepared, Scored]:
            with stages.stage("forward"):
                scored = scores.score_each(prepared.encoded)
            self.means.observer.step(f"chunk {prepared.plan.index} scored")
            return prepared, scored

        def write(item: tuple[Prepared, Scored]) -> None:
            with stages.stage("write"):
                table, info = assemble(*item, schema.columns, version)
                write_part(self.out / PARTS, table, info, self.means.observer.step)
            self._note(info, found.rows, resumed=False)

        flow(self._prepared(plans, found, stages), forward, write)

    def _prepared(self, plans: list[PartPlan], found: Survey, stages: StageTimer) -> Iterator[Prepared]:
        encoder = Encoder(self.job.bundle.fitted)
        done = frozenset(self.infos)
        chunks = self.job.source.chunks(self.job.chunk_size, done=done)
        for plan in (plan for plan in plans if plan.index not in done):
            with stages.stage("read"):
                chunk = next(chunks, None)
            if chunk is None:
                raise AccountingBroken(f"chunk {plan.index}: the table became shorter while it was read; run again")
            with stages.stage("encode"):
                prepared = prepare(chunk, plan, found, encoder, self.job.source.entity)
            self.means.observer.step(f"chunk {plan.index} prepared")
            yield prepared

    def _note(self, info: PartInfo, rows: int, *, resumed: bool) -> None:
        self.infos[info.plan.index] = info
        self.rejected += info.counts.rejected
        self.means.observer.chunk_done(info, resumed=resumed)
        if self.allowed is not None and self.rejected > self.allowed.rows(rows):  # no need to score the rest
            self._require_few_rejected(self._counts(), rows)

    def _counts(self) -> Counts:
        return total(self.infos[index].counts for index in sorted(self.infos))

    def _require_few_rejected(self, counts: Counts, rows: int) -> None:
        if self.allowed is not None:
            self.allowed.require(counts, rows)

    def _account(self, manifest: RunManifest, found: Survey, stages: StageTimer) -> RunManifest:
        counts = self._counts().require_balanced(str(self.out))
        if counts.input != found.rows or counts.duplicate != len(found.losers):
            raise AccountingBroken(f"{self.out}: the parts hold {counts.input} rows of {found.rows}; run again")
        if self.job.source.fingerprint() != self.job.fingerprint:
            raise RunError(f"{self.job.source.files.table} was changed while it was read; run again")
        parts = tuple(self._part(self.infos[index]) for index in sorted(self.infos))
        finished = changed(
            manifest,
            state=RunState.SCORED,
            reason=None,
            counts=counts,
            parts=parts,
            entities_not_found=found.not_found,
            seconds=stages.seconds,
            finished_at=int(self.means.clock.now()),
        )
        write_report(self.out, finished)
        self.means.observer.step("reported")
        write_manifest(self.out, finished)
        self.means.observer.step("scored")
        return finished

    def _part(self, info: PartInfo) -> Part:
        rows = info.counts.scored + info.counts.rejected
        return Part(file=info.plan.name, rows=rows, sha256=part_digest(self.out / PARTS / info.plan.name))
