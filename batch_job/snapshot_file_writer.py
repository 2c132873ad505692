"""Writes the file of a snapshot: rows in any order become batches that are sorted by the hash of their ids.

Memory is bounded by the spool, however many rows there are, and the bytes are the same whatever their order was.
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batch_job.atomic import no_step, write_atomic
from batch_job.spool import Spool, taken_rows
from shared.snapshot import SnapshotMeta
from shared.snapshot_file_layout import (
    BATCH_ROWS,
    COLUMNS,
    NUMBER_KEY,
    SEAL_KEY,
    Seal,
    checks_of,
    hashes_of,
    head_of,
    schema_of,
)

PASS_ROWS = 250_000
"""Rows that are sorted at once."""

SPOOL = "spool-file"


def write_snapshot_file(
    path: Path,
    meta: SnapshotMeta,
    rows: Iterable[tuple[pa.Array, pa.Array]],
    step: Callable[[str], None] = no_step,
    *,
    batch_rows: int = BATCH_ROWS,
    memory_rows: int = PASS_ROWS,
) -> int:
    """Puts the file there, whole or not at all, and returns its rows.

    ``rows``: ids (text, no nulls, each once) and their packed values, in columns of any length.
    """
    passes = max(1, -(-meta.published // PASS_ROWS))
    with Spool(path.parent / SPOOL, passes, memory_rows=memory_rows) as spool:
        for ids, values in rows:
            hashes = hashes_of(ids)
            columns = {"hash": hashes, "id": ids.cast(pa.binary()), "value": values.cast(pa.binary())}
            spool.add(pa.table(columns), _partition(hashes, passes))
        body = _Body(meta, batch_rows, step)
        write_atomic(path, lambda file: body.fill(file, _sorted(spool)), step)
        return body.rows


class _Body:
    def __init__(self, meta: SnapshotMeta, batch_rows: int, step: Callable[[str], None]) -> None:
        self.rows = 0
        self._schema = schema_of(meta)
        self._batch_rows = batch_rows
        self._step = step

    def fill(self, file: BinaryIO, tables: Iterator[pa.Table]) -> None:
        """All batches, and the seal."""
        sink = _Counting(file)
        with pa.ipc.new_file(pa.PythonFile(sink, "w"), self._schema) as writer:
            for number, table in enumerate(_even(tables, self._batch_rows)):
                writer.write_batch(_batch(table), custom_metadata={NUMBER_KEY: b"%d" % number})
                self.rows += table.num_rows
                self._step("batch of the file written")
            nothing = pa.RecordBatch.from_pylist([], schema=COLUMNS)
            writer.write_batch(nothing, custom_metadata={SEAL_KEY: self._seal(sink).to_json()})

    def _seal(self, written: "_Counting") -> Seal:
        return Seal.of(
            head_of(self._schema) or b"",
            rows=self.rows,
            batch_rows=self._batch_rows,
            size=written.size,
            sha256=written.digest.hexdigest(),
        )


class _Counting(io.RawIOBase):
    """Passes on what is written, and knows its size and digest."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self.size = 0
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: "pa.Buffer | bytes") -> int:
        self.digest.update(data)
        written = self._file.write(data)
        self.size += written
        return written


def _partition(hashes: npt.NDArray[np.uint64], passes: int) -> npt.NDArray[np.uint32]:
    """The part of the hashes' range that each lies in."""
    return ((hashes >> np.uint64(32)) * np.uint64(passes) >> np.uint64(32)).astype(np.uint32)


def _sorted(spool: Spool) -> Iterator[pa.Table]:
    for table in spool.tables():
        whole = table.combine_chunks()
        yield taken_rows(whole, _order(whole["hash"].to_numpy()))


def _order(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The stable order, which is slower to find, and the same where no two hashes are equal."""
    order = np.argsort(hashes)
    found = hashes[order]
    return np.argsort(hashes, kind="stable") if (found[1:] == found[:-1]).any() else order


def _even(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of so many, the last one excepted."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        whole = pa.concat_tables(waiting)
        even = whole.num_rows - whole.num_rows % rows
        for first in range(0, even, rows):
            yield whole.slice(first, rows)
        waiting = [whole.slice(even)]
    if waiting and waiting[0].num_rows:
        yield waiting[0]


def _batch(table: pa.Table) -> pa.RecordBatch:
    hashes, ids, values = (table[name].combine_chunks() for name in ("hash", "id", "value"))
    checks = pa.array(checks_of(values, hashes.to_numpy()))
    return pa.RecordBatch.from_arrays([hashes, ids, values, checks], schema=COLUMNS)
