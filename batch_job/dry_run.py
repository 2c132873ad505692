"""``forescore backfill --dry-run``: what a run would do, with nothing written and nothing scored."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from batch_job.counts import RejectionCount, rejection_counts
from batch_job.duplicates import Survey, survey
from batch_job.job import Job
from batch_job.parts import PartPlan, plan_parts
from batch_job.rows import Prepared, prepare
from shared.encode import Encoder

ENTITY_BYTES = 30
"""What an entity with one score takes in the store, about; every further score takes four bytes more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a run would do. ``checked`` rows, those of the first chunk, were encoded; ``rejections`` are among them."""

    rows: int
    chunks: int
    duplicates: int
    checked: int
    rejections: tuple[RejectionCount, ...]
    store_bytes: int
    key: str
    not_found: int | None
    """How many of the listed ids the table does not have."""
    partitions: tuple[str, ...]
    """The values of the folders that are read, where they are several."""


def dry_run(job: Job) -> DryRun:
    """Reads the ids of the whole table and the features of its first chunk."""
    with tempfile.TemporaryDirectory() as folder:
        found = survey(job.source, "last", Path(folder) / "spool")
    plans = list(plan_parts(job.key, found.rows, job.chunk_size))
    checked = _check(job, plans[0], found) if plans else None
    key = job.source.files.range_key
    entity_bytes = ENTITY_BYTES + 4 * (len(job.bundle.schema.columns) - 1)
    return DryRun(
        rows=found.rows,
        chunks=len(plans),
        duplicates=len(found.losers),
        checked=plans[0].rows if plans else 0,
        rejections=() if checked is None else _rejections(checked),
        store_bytes=entity_bytes * (found.rows - len(found.losers)),
        key=job.key,
        not_found=found.not_found,
        partitions=() if key is None else tuple(sorted(job.source.files.values(key))),
    )


def _check(job: Job, plan: PartPlan, found: Survey) -> Prepared:
    chunk = next(job.source.chunks(job.chunk_size))
    return prepare(chunk, plan, found, Encoder(job.bundle.fitted), job.source.entity)


def _rejections(checked: Prepared) -> tuple[RejectionCount, ...]:
    rejections = (*checked.rejections, *checked.encoded.rejections)
    return rejection_counts((rejection.code.text, rejection.field) for rejection in rejections)
