"""Writes the file of a snapshot: entities in the order of their buckets, as the store gets them, become its batches.

Memory is bounded by the batches, however many entities there are. Those of one bucket may come in any order, and in
several batches: the bytes are the same.
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batch_job.atomic import no_step, write_atomic
from batch_job.spool import taken_rows
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
from shared.store.interfaces import PublishBatch


def write_snapshot_file(
    path: Path,
    meta: SnapshotMeta,
    batches: Iterable[PublishBatch],
    step: Callable[[str], None] = no_step,
    *,
    batch_rows: int = BATCH_ROWS,
) -> int:
    """Puts the file there, whole or not at all, and returns its rows.

    ``batches``: each entity once, in the order of their buckets; ValueError if they are in another.
    """
    body = _Body(meta, batch_rows, step)
    write_atomic(path, lambda file: body.fill(file, _sorted(batches)), step)
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


def _sorted(batches: Iterable[PublishBatch]) -> Iterator[pa.Table]:
    """The rows in order. A batch's last bucket may go on in the next one: it waits for that."""
    waiting: list[pa.Table] = []
    last = 0
    for batch in batches:
        if not len(batch):
            continue
        if int(batch.buckets[0]) < last:
            raise ValueError("the entities must come in the order of their buckets")
        last = int(batch.buckets[-1])
        table, whole = _table(batch), int(np.searchsorted(batch.buckets, last))
        if whole:
            yield _in_order([*waiting, table.slice(0, whole)])
            waiting = []
        waiting.append(table.slice(whole))
    if waiting:
        yield _in_order(waiting)


def _table(batch: PublishBatch) -> pa.Table:
    ids, values = batch.ids.cast(pa.binary()), batch.values.cast(pa.binary())
    return pa.table({"hash": hashes_of(ids, batch.buckets), "id": ids, "value": values})


def _in_order(tables: list[pa.Table]) -> pa.Table:
    """The rows sorted by their hashes, those of one hash by their ids."""
    table = pa.concat_tables(tables).combine_chunks()
    hashes = table["hash"].to_numpy()
    order = np.argsort(hashes)
    found = hashes[order]
    again = found[1:] == found[:-1]
    if again.any():
        shared = np.flatnonzero(np.append(again, False) | np.insert(again, 0, False))
        order[shared] = order[shared][_by_hash_and_id(table.take(pa.array(order[shared])))]
    return taken_rows(table, order)


def _by_hash_and_id(table: pa.Table) -> npt.NDArray[np.int64]:
    order: npt.NDArray[np.int64] = pc.sort_indices(table, [("hash", "ascending"), ("id", "ascending")]).to_numpy()
    return order


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
