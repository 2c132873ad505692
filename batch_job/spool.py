"""Rows set aside by partition, on disk once they are many, so that one partition at a time fits in memory."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shared.texts import taken

MEMORY_ROWS = 1_000_000
"""Rows that are kept in memory before they are spilled."""

_MOST = np.uint32(2**32 - 1)
_RADIX = 2**16
"""NumPy sorts 16-bit numbers digit by digit, several times faster than it compares wider ones."""


def sorting(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """The stable order of the numbers, fast where they lie in a range of 65,536."""
    least = numbers.min(initial=_MOST)
    near = numbers.max(initial=least) - least < _RADIX
    return np.argsort((numbers - least).astype(np.uint16) if near else numbers, kind="stable")


def taken_rows(table: pa.Table, order: npt.NDArray[np.int64]) -> pa.Table:
    """These rows of a table whose columns are in one piece."""
    return pa.table({name: taken(_whole(table[name]), order) for name in table.column_names})


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class Spool:
    """Tables of one schema go in with the partition of each row; they come out partition by partition, rows in order.

    ``folder`` is the spool's own: what an interrupted run left there is removed, and so is the spool at the end.
    """

    def __init__(self, folder: Path, partitions: int, *, memory_rows: int = MEMORY_ROWS) -> None:
        self._folder = folder
        self._count = partitions
        self._memory_rows = memory_rows
        self._waiting: list[tuple[pa.Table, npt.NDArray[np.uint32]]] = []
        self._waiting_rows = 0
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, table: pa.Table, partition: npt.NDArray[np.uint32]) -> None:
        """Takes rows; ``partition`` is uint32 [rows], below the number of partitions."""
        self._waiting.append((table, partition))
        self._waiting_rows += table.num_rows
        if self._waiting_rows > self._memory_rows:
            self._spill()

    def tables(self) -> Iterator[pa.Table]:
        """All rows: those of one partition are in one table, and the tables come in the order of the partitions.

        What never left memory is one table, whatever the partitions.
        """
        if not self._writers:
            if self._waiting:
                yield pa.concat_tables([table for table, _ in self._waiting])
            return
        self._spill()
        self._stack.close()
        for partition in sorted(self._writers):
            with pa.OSFile(str(self._path(partition))) as file:
                yield pa.ipc.open_stream(file).read_all()

    def _spill(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables([table for table, _ in self._waiting])
        partition = np.concatenate([numbers for _, numbers in self._waiting])
        self._waiting, self._waiting_rows = [], 0
        order = sorting(partition)
        table = taken_rows(table.combine_chunks(), order)
        numbers, starts = np.unique(partition[order], return_index=True)
        for number, start, end in zip(numbers, starts, [*starts[1:], table.num_rows], strict=True):
            self._writer(int(number), table.schema).write_table(table.slice(int(start), int(end - start)))

    def _writer(self, partition: int, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
        if partition not in self._writers:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._stack.enter_context(pa.OSFile(str(self._path(partition)), "wb"))
            self._writers[partition] = self._stack.enter_context(pa.ipc.new_stream(file, schema))
        return self._writers[partition]

    def _path(self, partition: int) -> Path:
        return self._folder / f"{partition:05d}.arrows"
