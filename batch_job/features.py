"""``forescore features load``: a table of features into the store, from where the service scores the unseen.

The rows go the way of a backfill's up to the encoder: what breaks a rule of the schema is rejected here, with the same
code, and is not written.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import typer

from batch_job.counts import Counts, rejection_counts, total
from batch_job.duplicates import Duplicates, survey
from batch_job.gates import RejectionLimit
from batch_job.job import Job, open_job
from batch_job.parts import plan_parts
from batch_job.progress import LINE_SECONDS
from batch_job.report import aligned
from batch_job.rows import Prepared, prepare
from batch_job.source import Chunk, Selection
from shared.clock import Clock, MonotonicClock
from shared.columns import python_values
from shared.encode import Encoder
from shared.errors import RunError, SettingsError
from shared.payload import table_payloads
from shared.schema import Schema
from shared.settings import Settings, load_settings
from shared.store.connect import open_store
from shared.store.interfaces import FeatureWriter

SLAB_VALUES = 1_000_000
"""The most values that are Python objects at a time."""

_TOP = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The command's arguments and options."""

    table: str
    bundle: Path | None
    ttl_seconds: int | None
    chunk_size: int | None
    order_by: str | None
    duplicates: Duplicates
    max_rejected: str | None
    selection: Selection
    as_json: bool


def run(options: LoadOptions) -> None:
    """The command. What goes wrong is raised as the error that says so."""
    settings = load_settings()
    job = _job(options, settings)
    allowed = RejectionLimit(options.max_rejected or settings.batch.max_rejected)
    ttl_seconds = _ttl(options, settings)
    progress = Progress(sys.stdout if options.as_json else sys.stderr, MonotonicClock(), as_json=options.as_json)
    with open_store(settings, job.bundle.name) as store:
        counts = load(job, store.features, ttl_seconds, progress)
    _tell(job, counts, ttl_seconds, as_json=options.as_json)
    allowed.require(counts, counts.input)


def load(job: Job, writer: FeatureWriter, ttl_seconds: int, progress: "Progress") -> Counts:
    """Writes the features of every row that fits the schema, and accounts for all: ``scored`` are those written."""
    encoder, source = Encoder(job.bundle.fitted), job.source
    with tempfile.TemporaryDirectory(prefix="forescore-") as folder:
        found = survey(source, job.duplicates, Path(folder) / "spool")
    done: list[Counts] = []
    plans = plan_parts(job.key, found.rows, job.chunk_size)
    for chunk, plan in zip(source.chunks(job.chunk_size), plans, strict=True):
        prepared = prepare(chunk, plan, found, encoder, source.entity)
        written = writer.write_many(_entries(chunk, prepared, job.bundle.schema), ttl_seconds)
        done.append(_counts(prepared, written))
        progress.chunk_done(done[-1], found.rows)
    counts = total(done).require_balanced(source.files.table)
    if counts.input != found.rows or source.fingerprint() != job.fingerprint:
        raise RunError(f"{source.files.table} was changed while it was read; run again")
    return counts


class Progress:
    """Tells how far it is: a line now and then, or JSON for each chunk."""

    def __init__(self, stream: TextIO, clock: Clock, *, as_json: bool) -> None:
        self._stream = stream
        self._clock = clock
        self._as_json = as_json
        self._told = clock.now()
        self._done = 0

    def chunk_done(self, counts: Counts, rows: int) -> None:
        """A chunk was written; the table has so many ``rows``."""
        self._done += counts.input
        if self._as_json:
            self._say(orjson.dumps({"event": "chunk", **_numbers(counts)}).decode())
        elif self._clock.now() - self._told >= LINE_SECONDS:
            self._told = self._clock.now()
            self._say(f"{self._done:,} of {rows:,} rows ({self._done / rows:.0%})")

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def _job(options: LoadOptions, settings: Settings) -> Job:
    bundle = options.bundle or settings.bundle
    if bundle is None:
        raise SettingsError("no bundle: name the one whose schema the table has, --bundle, or set FORESCORE_BUNDLE")
    return open_job(
        options.table,
        bundle=bundle,
        chunk_size=settings.batch.chunk_size if options.chunk_size is None else options.chunk_size,
        order_by=options.order_by,
        duplicates=options.duplicates,
        selection=options.selection,
    )


def _ttl(options: LoadOptions, settings: Settings) -> int:
    longest = settings.features.ttl_seconds
    if options.ttl_seconds is not None and options.ttl_seconds > longest:
        raise SettingsError(f"--ttl {options.ttl_seconds}: at most {longest}, or raise FORESCORE_FEATURES__TTL_SECONDS")
    return options.ttl_seconds or longest


def _entries(chunk: Chunk, prepared: Prepared, schema: Schema) -> Iterator[tuple[str, bytes]]:
    """Ids and payloads of the rows that fit, converted a bounded number at a time."""
    fit = prepared.positions[prepared.encoded.rows]
    features = chunk.table.select([feature.name for feature in schema.features])
    values = len(schema.features) + sum(tensor.size for tensor in schema.tensors)
    step = max(1, SLAB_VALUES // values)
    for start in range(0, len(fit), step):
        yield from _slab(features, prepared.ids, fit[start : start + step])


def _slab(features: pa.Table, ids: pa.Array, rows: npt.NDArray[np.int64]) -> Iterator[tuple[str, bytes]]:
    taken = features.take(pa.array(rows))
    columns = {name: python_values(taken[name].combine_chunks()) for name in taken.column_names}
    return zip(ids.take(pa.array(rows)).to_pylist(), table_payloads(columns), strict=True)


def _counts(prepared: Prepared, written: int) -> Counts:
    rejections = (*prepared.rejections, *prepared.encoded.rejections)
    return Counts(
        input=prepared.plan.rows,
        scored=written,
        rejected=len(rejections),
        duplicate=int(prepared.lost.sum()),
        rejections=rejection_counts((rejection.code.text, rejection.field) for rejection in rejections),
    ).require_balanced(f"chunk {prepared.plan.index}")


def _numbers(counts: Counts) -> dict[str, int]:
    return {
        "input": counts.input,
        "loaded": counts.scored,
        "rejected": counts.rejected,
        "duplicate": counts.duplicate,
    }


def _tell(job: Job, counts: Counts, ttl_seconds: int, *, as_json: bool) -> None:
    bundle, table = job.bundle, job.source.files.table
    if as_json:
        reasons = [reason.model_dump() for reason in counts.rejections]
        facts: dict[str, object] = {
            "event": "finished",
            "model": bundle.name,
            "model_version": bundle.version,
            "input_path": table,
        }
        facts |= {"counts": {**_numbers(counts), "rejections": reasons}, "ttl_seconds": ttl_seconds}
        typer.echo(orjson.dumps(facts).decode())
        return
    more = f", and {len(counts.rejections) - _TOP} more reasons" if len(counts.rejections) > _TOP else ""
    detail = ", ".join(map(str, counts.rejections[:_TOP])) + more
    typer.echo(
        aligned(
            [
                ("model", f"{bundle.name} {bundle.version}"),
                ("input", f"{counts.input:,} rows of {table}"),
                ("loaded", f"{counts.scored:,}, kept for {ttl_seconds:,} s"),
                ("rejected", f"{counts.rejected:,}" + (f" ({detail})" if detail else "")),
                ("duplicate", f"{counts.duplicate:,}"),
            ]
        )
    )
