"""Whether one may ask what a Parquet file's footer says of its columns.

Where it says what cannot be (counts of other levels than the column has, a compression that there is not), Arrow throws
when the column is looked at. Its readers tell that as an error; pyarrow's ``RowGroupMetaData.column`` and
``ColumnChunkMetaData.compression`` let it through, and the process ends. So a reading is begun first, of a file that
has the size alone: by the time that a reader asks for the first byte, it has looked at all columns of the row group.
"""

import io
from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

_BUFFER_BYTES = 4096
"""With a buffer, no column is read before it is wanted."""


class _Looked(Exception):
    """The reader asks for bytes."""


class _NothingToRead(io.RawIOBase):
    """A file of so many bytes, none of which can be had."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size, self._place = size, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def read(self, size: int = -1) -> NoReturn:  # noqa: ARG002 not so much, and no less
        raise _Looked


def require_footer(metadata: pq.FileMetaData, size: int, columns: Sequence[str] | None = None) -> None:
    """ArrowException or OSError if the footer of a file of ``size`` bytes says what cannot be of these columns (None:
    all), or of those that are within them, in any row group."""
    with pa.PythonFile(_NothingToRead(size), mode="r") as source:
        file = pq.ParquetFile(source, metadata=metadata, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        for group in range(metadata.num_row_groups):
            try:
                next(file.iter_batches(1, [group], columns, use_threads=False), None)
            except _Looked:
                continue
