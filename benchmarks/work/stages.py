"""``python -m benchmarks.work.stages BUNDLE TABLE OUT``: each stage of the batch job alone, by its own functions.

The chunks are those of a run, one after the other; while one stage works on one, no other stage does anything.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from batch_job.duplicates import Survey, survey
from batch_job.job import Job, Means, open_job, opener
from batch_job.parts import plan_parts, write_part
from batch_job.rows import Prepared, assemble, prepare
from benchmarks.children import answer
from shared.clock import MonotonicClock
from shared.encode import Encoder
from shared.scorer import score_each
from shared.settings import load_settings
from shared.telemetry import StageTimer


def main() -> None:
    bundle, table, out = sys.argv[1:]
    job = open_job(table, bundle=bundle, chunk_size=load_settings().batch.chunk_size)
    stages = StageTimer(MonotonicClock())
    rows = work(job, Path(out), stages)
    answer(rows=rows, seconds={name: stages.seconds[name] for name in ("read", "forward", "write")})


def work(job: Job, out: Path, stages: StageTimer) -> int:
    """Makes all parts in ``out``, and returns how many rows there were."""
    out.mkdir()
    scorer = opener(job, Means())()
    found = survey(job.source, job.duplicates, out / "spool")
    for prepared in _prepared(job, found, stages):
        with stages.stage("forward"):
            scored = score_each(scorer, prepared.encoded)
        with stages.stage("write"):
            table, info = assemble(prepared, scored, job.bundle.schema.columns, job.bundle.version)
            write_part(out, table, info)
    return found.rows


def _prepared(job: Job, found: Survey, stages: StageTimer) -> Iterator[Prepared]:
    encoder = Encoder(job.bundle.fitted)
    chunks = job.source.chunks(job.chunk_size)
    for plan in plan_parts(job.key, found.rows, job.chunk_size):
        with stages.stage("read"):
            prepared = prepare(next(chunks), plan, found, encoder, job.source.entity)
        yield prepared


if __name__ == "__main__":
    main()
