"""Which rows do not count because another row of the same entity does.

Found in a pass of its own before anything is scored, so that a duplicate costs no forward pass. Ids are compared as
text, exactly. Memory is bounded: ids are spooled by a hash, and one partition at a time is looked at.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batch_job.source import Keys, Source
from batch_job.spool import MEMORY_ROWS, Spool
from shared.errors import ColumnRefused, DuplicateIds
from shared.layout import buckets_of

Duplicates = Literal["refuse", "last"]

_PARTITIONS = 256
_NAMED = 3
_NAMED_CHARACTERS = 40
_WHOLE = r"^[+-]?[0-9]{1,18}$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the pass over the ids found: how many rows there are, and which of them do not count (int64, ascending)."""

    rows: int
    losers: npt.NDArray[np.int64]

    def lost(self, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
        """Boolean [rows]: which of these consecutive rows do not count."""
        start, end = np.searchsorted(self.losers, (first_row, first_row + rows))
        mask = np.zeros(rows, dtype=np.bool_)
        mask[self.losers[start:end] - first_row] = True
        return mask


def survey(source: Source, duplicates: Duplicates, folder: Path, *, memory_rows: int = MEMORY_ROWS) -> Survey:
    """Counts the rows and finds those that do not count; ``folder`` is for the spool.

    With ``order_by`` the row with the greatest value counts (null and NaN lose, the later row wins a tie), whatever
    ``duplicates`` says. Without it the last row counts, or with ``refuse`` DuplicateIds is raised. The row that counts
    does so even if it is rejected later. Rows whose id was refused are never duplicates of one another.
    """
    _require_order(source)
    rows, order = 0, _Order()
    with Spool(folder, _PARTITIONS, memory_rows=memory_rows) as spool:
        for keys in source.id_batches():
            table = _numbered(keys, rows)
            rows += len(keys.ids)
            order.see(table["order"])
            spool.add(table, buckets_of(table["id"].combine_chunks(), _PARTITIONS))
        found = [_losers(table, order) for table in spool.tables()]
    losers = np.concatenate([rows for rows, _ in found]) if found else np.empty(0, np.int64)
    if len(losers) and source.order_by is None and duplicates == "refuse":
        raise _refusal(len(losers), [name for _, names in found for name in names])
    return Survey(rows=rows, losers=np.sort(losers))


def _numbered(keys: Keys, first: int) -> pa.Table:
    rows = pa.array(np.arange(first, first + len(keys.ids), dtype=np.int64))
    order = pa.nulls(len(keys.ids)) if keys.order is None else keys.order
    return pa.table({"id": keys.ids, "row": rows, "order": order}).filter(keys.ids.is_valid())


def _losers(table: pa.Table, order: "_Order") -> tuple[npt.NDArray[np.int64], list[tuple[int, str]]]:
    """The rows that do not count, and a few of them with their ids."""
    codes = table["id"].combine_chunks().dictionary_encode().indices.to_numpy()
    repeated = np.flatnonzero(np.bincount(codes)[codes] > 1) if len(codes) else np.empty(0, np.int64)
    if not len(repeated):
        return np.empty(0, np.int64), []
    table = table.take(pa.array(repeated))
    codes, rows = codes[repeated], table["row"].to_numpy()
    sorting = np.lexsort((rows, order.ranks(table["order"]), codes))
    beaten = sorting[:-1][codes[sorting[:-1]] == codes[sorting[1:]]]
    named = beaten[np.argsort(rows[beaten])[:_NAMED]]
    ids = table["id"].take(pa.array(named)).to_pylist()
    return rows[beaten], list(zip(rows[named].tolist(), ids, strict=True))


def _refusal(count: int, named: list[tuple[int, str]]) -> DuplicateIds:
    ids = ", ".join(repr(entity_id[:_NAMED_CHARACTERS]) for _, entity_id in sorted(named)[:_NAMED])
    return DuplicateIds(
        f"{count} rows repeat the id of another row, among them those of {ids}; say which row counts: "
        "--order-by COLUMN (the greatest value) or --duplicates last (the last row)"
    )


def _require_order(source: Source) -> None:
    if source.order_by is None:
        return
    kind = source.schema.field(source.order_by).type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise ColumnRefused(f"--order-by: column {source.order_by} is {kind}; it takes numbers, dates, times or text")


class _Order:
    """How the values of the ``order_by`` column compare: null, NaN and empty text below everything else.

    Texts compare as numbers if every one of them spells a number, so that CSV orders as Parquet does; else as text,
    which is right for dates and times in ISO form.
    """

    def __init__(self) -> None:
        self._whole = True
        self._numbers = True

    def see(self, column: pa.ChunkedArray) -> None:
        """Called for every batch before any is ranked."""
        if _is_text(column.type) and self._numbers:
            text = _trimmed(column)
            self._whole = self._whole and _all_match(text, _WHOLE)
            self._numbers = self._whole or _all_match(text, _NUMBER)

    def ranks(self, column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
        """The place of each value among those given: equal ones share it, the lowest place is 0."""
        values = column.combine_chunks()
        if pa.types.is_null(values.type):
            return np.zeros(len(values), np.uint64)
        if _is_text(values.type):
            values = _trimmed(values)
            values = values.cast(pa.int64() if self._whole else pa.float64()) if self._numbers else values
        if pa.types.is_floating(values.type):
            values = values.cast(pa.float64())
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        places = pc.rank(values, tiebreaker="dense").to_numpy()
        missing = values.is_null().to_numpy(zero_copy_only=False)
        return np.where(missing, 0, places).astype(np.uint64)


def _trimmed(text: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    text = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)


def _all_match(text: pa.ChunkedArray, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(text, pattern)).as_py() is not False


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or bool(pa.types.is_large_string(kind))
