"""One chunk on its way: what of it is encoded, and what becomes of each row."""

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
    rows = prepared.plan.rows
    rejections = [*prepared.rejections, *_in_chunk(prepared, scored)]
    found, rejected, kept = np.zeros(rows, dtype=np.bool_), np.zeros(rows, dtype=np.bool_), ~prepared.lost
    found[prepared.positions[scored.rows]] = True
    rejected[[rejection.row for rejection in rejections]] = True
    _require_each_once(prepared, found, rejected)
    scores = np.zeros((rows, len(columns)), dtype=np.float32)
    scores[found] = scored.scores
    numbers = prepared.plan.first_row + np.arange(rows, dtype=np.int64)
    data = [
        prepared.ids if kept.all() else prepared.ids.filter(pa.array(kept)),
        pa.array(numbers[kept]),
        _words([SCORED, REJECTED], rejected[kept]),
        _reasons(rejections, [rejection.code.text for rejection in rejections], rows).filter(pa.array(kept)),
        _reasons(rejections, [rejection.field for rejection in rejections], rows).filter(pa.array(kept)),
        _words([version], np.zeros(int(kept.sum()), np.int8)),
        *(pa.array(scores[kept, place], mask=~found[kept]) for place in range(len(columns))),
    ]
    counts = Counts(
        input=rows,
        scored=int(found.sum()),
        rejected=int(rejected.sum()),
        duplicate=int(prepared.lost.sum()),
        rejections=rejection_counts((rejection.code.text, rejection.field) for rejection in rejections),
    )
    return pa.table(data, names=part_schema(columns).names), PartInfo(plan=prepared.plan, counts=counts)


def _words(words: list[str], places: npt.NDArray[np.int8] | npt.NDArray[np.bool_]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int8)), pa.array(words, pa.string()))


def _reasons(rejections: list[Rejection], words: list[str | None], rows: int) -> pa.DictionaryArray:
    """A word for each rejected row, null for all others."""
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
