"""One chunk on its way: what of it is encoded, and what becomes of each row."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batch_job.counts import Counts, rejection_counts
from batch_job.duplicates import Survey
from batch_job.parts import REJECTED, SCORED, PartInfo, PartPlan, part_schema
from batch_job.source import Chunk
from shared.codes import Code, Rejection
from shared.encode import Encoded, Encoder
from shared.errors import AccountingBroken
from shared.ids import id_column
from shared.scorer import Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A chunk, taken apart: ``encoded`` is of the rows at ``positions`` of the chunk, the others are ``lost`` to a
    duplicate or in ``rejections`` (their positions in the chunk)."""

    plan: PartPlan
    ids: pa.Array
    lost: npt.NDArray[np.bool_]
    positions: npt.NDArray[np.int64]
    rejections: tuple[Rejection, ...]
    encoded: Encoded


def prepare(chunk: Chunk, plan: PartPlan, survey: Survey, encoder: Encoder, entity: str) -> Prepared:
    """Sets aside what cannot be scored, and encodes the rest. A row without a usable id is not encoded."""
    if (chunk.index, chunk.first_row, len(chunk)) != (plan.index, plan.first_row, plan.rows):
        raise AccountingBroken(f"chunk {plan.index}: the table changed while it was read; run again")
    ids = id_column(chunk.table[entity], entity)
    lost = survey.lost(plan.first_row, plan.rows)
    malformed = np.flatnonzero(chunk.malformed)
    rejections = [Rejection(row=int(row), code=Code.MALFORMED_LINE) for row in malformed]
    refused = ((row, code) for row, code in ids.refused.items() if not chunk.malformed[row])
    rejections += [Rejection(row=row, code=code, field=entity) for row, code in refused]
    open_rows = ~lost
    open_rows[[rejection.row for rejection in rejections]] = False
    positions = np.flatnonzero(open_rows)
    table = chunk.table if len(positions) == plan.rows else chunk.table.take(pa.array(positions))
    return Prepared(
        plan=plan,
        ids=ids.text,
        lost=lost,
        positions=positions,
        rejections=tuple(rejections),
        encoded=encoder.columns(table),
    )


def assemble(prepared: Prepared, scored: Scored, columns: tuple[str, ...], version: str) -> tuple[pa.Table, PartInfo]:
    """The part of a chunk: every row that is no duplicate, in order, with its scores or the reason why not."""
    rows, first = prepared.plan.rows, prepared.plan.first_row
    rejections = [*prepared.rejections, *_in_chunk(prepared, scored)]
    found, rejected = np.zeros(rows, dtype=np.bool_), np.zeros(rows, dtype=np.bool_)
    found[prepared.positions[scored.rows]] = True
    rejected[[rejection.row for rejection in rejections]] = True
    _require_each_once(prepared, found, rejected)
    data = [
        prepared.ids,
        pa.array(np.arange(first, first + rows, dtype=np.int64)),
        _words([SCORED, REJECTED], rejected),
        _reasons(rejections, [rejection.code.text for rejection in rejections], rows),
        _reasons(rejections, [rejection.field for rejection in rejections], rows),
        _words([version], np.zeros(rows, np.int8)),
        *_scores(scored.scores, found),
    ]
    table = pa.table(data, names=part_schema(columns).names)
    counts = Counts(
        input=rows,
        scored=int(found.sum()),
        rejected=int(rejected.sum()),
        duplicate=int(prepared.lost.sum()),
        rejections=rejection_counts((rejection.code.text, rejection.field) for rejection in rejections),
    )
    part = table.filter(pa.array(~prepared.lost)) if counts.duplicate else table
    return part, PartInfo(plan=prepared.plan, counts=counts)


def _scores(scores: npt.NDArray[np.float32], found: npt.NDArray[np.bool_]) -> Iterator[pa.Array]:
    """Each score of all rows: null for those that were not found."""
    if len(scores) == len(found):
        yield from (pa.array(np.ascontiguousarray(column)) for column in scores.T)
        return
    every = np.zeros((len(found), scores.shape[1]), np.float32)
    every[found] = scores
    yield from (pa.array(column, mask=~found) for column in every.T)


def _words(words: list[str], places: npt.NDArray[np.int8] | npt.NDArray[np.bool_]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(places.view(np.int8)), pa.array(words, pa.string()))


def _reasons(rejections: list[Rejection], words: list[str | None], rows: int) -> pa.DictionaryArray:
    """A word for each rejected row, null for all others."""
    if all(word is None for word in words):
        return pa.nulls(rows, pa.dictionary(pa.int32(), pa.string()))
    distinct = sorted({word for word in words if word is not None})
    numbers = {word: place for place, word in enumerate(distinct)}
    places = np.full(rows, -1, np.int32)
    places[[rejection.row for rejection in rejections]] = [-1 if word is None else numbers[word] for word in words]
    indices = pa.array(places, mask=places < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(distinct, pa.string()))


def _in_chunk(prepared: Prepared, scored: Scored) -> list[Rejection]:
    return [
        Rejection(row=int(prepared.positions[rejection.row]), code=rejection.code, field=rejection.field)
        for rejection in scored.rejections
    ]


def _require_each_once(prepared: Prepared, found: npt.NDArray[np.bool_], rejected: npt.NDArray[np.bool_]) -> None:
    fates = found.astype(np.int8) + rejected + prepared.lost
    if (fates != 1).any():
        row = prepared.plan.first_row + int(np.flatnonzero(fates != 1)[0])
        raise AccountingBroken(f"row {row} is not exactly one of scored, rejected, duplicate; report this")
