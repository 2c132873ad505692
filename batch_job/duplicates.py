"""Which rows do not count because another row of the same entity does.

Found before anything is scored, so that a duplicate costs no forward pass. A first pass over the ids compares their
fingerprints, which takes 8 bytes a row. Only ids that share one are looked at in a second pass, which compares them as
text, exactly, and is left out where there are none. Memory is bounded in both: rows are spooled by a hash, and one
partition at a time is looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batch_job.fingerprints import Fingerprints, fingerprints
from batch_job.pipeline import ahead
from batch_job.source import Keys, Source
from batch_job.spool import MEMORY_ROWS, Spool
from batch_job.wanted import Wanted
from shared.errors import ColumnRefused, DuplicateIds

Duplicates = Literal["refuse", "last"]

_PARTITIONS = 256
_PARTITION_SHIFT = np.uint64(56)
_FINGERPRINT_ROWS = 8_000_000
"""Fingerprints that are kept in memory: 64 MB."""
_MARK_BYTES = 8
_BATCHES_AHEAD = 4
"""Ids of so many readings wait to be looked at."""

_NAMED = 3
_NAMED_CHARACTERS = 40
_WHOLE = r"^[+-]?[0-9]{1,18}$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the pass over the ids found: how many rows there are, and which of them do not count (int64, ascending).

    ``not_found``: how many of the listed ids the table does not have; None where none were listed, or rows left unread.
    """

    rows: int
    losers: npt.NDArray[np.int64]
    not_found: int | None = None

    def lost(self, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
        """Boolean [rows]: which of these consecutive rows do not count."""
        start, end = np.searchsorted(self.losers, (first_row, first_row + rows))
        mask = np.zeros(rows, dtype=np.bool_)
        mask[self.losers[start:end] - first_row] = True
        return mask


def survey(
    source: Source,
    duplicates: Duplicates,
    folder: Path,
    *,
    memory_rows: int | None = None,
    under_way: Callable[[], None] = lambda: None,
) -> Survey:
    """Counts the rows and finds those that do not count; ``folder`` is for the spool.

    ``under_way`` is called once the first ids went all the way, if there are any: it may begin what loads a library in
    another thread. Until that is loaded, the system holds up each thread that is new, or calls what was never called
    before: the survey's own threads need not wait.

    With ``order_by`` the row with the greatest value counts (null and NaN lose, the later row wins a tie), whatever
    ``duplicates`` says. Without it the last row counts, or with ``refuse`` DuplicateIds is raised. The row that counts
    does so even if it is rejected later. Rows whose id was refused are never duplicates of one another.
    """
    _require_order(source)
    wanted = Wanted(source.wanted, whole=source.selection.limit is None)
    rows, suspects = _suspects(source, wanted, folder, memory_rows or _FINGERPRINT_ROWS, under_way)
    if not len(suspects):
        return Survey(rows=rows, losers=np.empty(0, np.int64), not_found=wanted.missing())
    found = _compared(source, suspects, folder, memory_rows or MEMORY_ROWS)
    losers = np.concatenate([rows for rows, _ in found]) if found else np.empty(0, np.int64)
    if len(losers) and source.order_by is None and duplicates == "refuse":
        raise _refusal(len(losers), [name for _, names in found for name in names], source.files.range_key)
    return Survey(rows=rows, losers=np.sort(losers), not_found=wanted.missing())


def _suspects(
    source: Source, wanted: Wanted, folder: Path, memory_rows: int, under_way: Callable[[], None]
) -> tuple[int, Fingerprints]:
    """How many rows there are, and the fingerprints that several rows have, ascending. ``wanted`` sees every id."""
    rows = 0
    with Spool(folder, _PARTITIONS, memory_rows=memory_rows) as spool:
        with ahead(source.id_batches(ordered=False), depth=_BATCHES_AHEAD) as batches:
            for keys in batches:
                wanted.see(keys.ids)
                marks = fingerprints(keys.ids.drop_null())
                spool.add(pa.table({"mark": marks}), _partition(marks))
                if not rows:
                    _repeated(pa.chunked_array([pa.array(marks)]))  # so that this was called before, too
                    under_way()
                rows += len(keys.ids)
        found = [_repeated(table["mark"]) for table in spool.tables()]
    return rows, np.concatenate(found) if found else np.empty(0, np.uint64)


def _repeated(marks: pa.ChunkedArray) -> Fingerprints:
    """One copy is made of them, and put in order where it lies: in memory of Arrow's, which goes back to the system."""
    ordered: Fingerprints = np.frombuffer(pa.allocate_buffer(len(marks) * _MARK_BYTES), np.uint64)
    np.concatenate([chunk.to_numpy() for chunk in marks.chunks], out=ordered)
    ordered.sort()
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def _compared(
    source: Source, suspects: Fingerprints, folder: Path, memory_rows: int
) -> list[tuple[npt.NDArray[np.int64], list[tuple[int, str]]]]:
    """The rows that do not count among those with a suspected id, which are compared as text."""
    rows, order = 0, _Order()
    with Spool(folder, _PARTITIONS, memory_rows=memory_rows) as spool:
        for keys in source.id_batches():
            table = _numbered(keys, rows)
            rows += len(keys.ids)
            order.see(table["order"])
            marks = fingerprints(table["id"].combine_chunks())
            places = np.searchsorted(suspects, marks)
            suspected = suspects[np.minimum(places, len(suspects) - 1)] == marks
            spool.add(table.filter(pa.array(suspected)), _partition(marks[suspected]))
        return [_losers(table, order) for table in spool.tables()]


def _partition(marks: Fingerprints) -> npt.NDArray[np.uint32]:
    return (marks >> _PARTITION_SHIFT).astype(np.uint32)


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


def _refusal(count: int, named: list[tuple[int, str]], key: str | None) -> DuplicateIds:
    later = "" if key is None else f"--order-by {key} (the later partition), "
    ids = ", ".join(repr(entity_id[:_NAMED_CHARACTERS]) for _, entity_id in sorted(named)[:_NAMED])
    return DuplicateIds(
        f"{count} rows repeat the id of another row, among them those of {ids}; say which row counts: "
        f"{later}--order-by COLUMN (the greatest value) or --duplicates last (the last row)"
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
