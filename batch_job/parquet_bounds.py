"""How much memory a Parquet file may take: known before it is taken, however small the file is.

A file says how many bytes its columns have uncompressed, and that is still packed: a text that a thousand rows share
stands there once, in a dictionary, and so do a thousand equal numbers of a list. So lists are counted by their
numbers, and texts of which a batch could become too large are read as they lie there and measured before they are
written out.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shared.errors import SourceError

MAX_ROW_GROUP_BYTES = 8 * 1024**3
"""The most bytes (uncompressed, of the columns that are read) of one Parquet row group."""

MAX_TEXT_BYTES = 256 * 1024**2
"""The most bytes of one column's texts, written out, in the rows that are read at once."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_TEXT = "BYTE_ARRAY"
_DIFFERENCES = "DELTA_BYTE_ARRAY"


def require_bounded(path: str, metadata: pq.FileMetaData, columns: frozenset[str]) -> None:
    """SourceError if one row group of the columns is too large to be read."""
    for index in range(metadata.num_row_groups):
        size = sum(_bytes(metadata, index, place, columns) for place in _places(metadata, columns))
        if size > MAX_ROW_GROUP_BYTES:
            raise SourceError(
                f"{path}: row group {index} has {size / 1024**3:.1f} GiB; the limit is "
                f"{MAX_ROW_GROUP_BYTES // 1024**3} GiB: write the file with smaller row groups"
            )


def written_by_difference(metadata: pq.FileMetaData) -> frozenset[str]:
    """The columns whose texts are written as what differs from the one before: Arrow reads no dictionaries of those."""
    every = range(metadata.num_columns)
    return frozenset(
        metadata.schema.column(place).path
        for index in range(metadata.num_row_groups)
        for place in every
        if _DIFFERENCES in metadata.row_group(index).column(place).encodings
    )


class PackedTexts:
    """The columns of text that stand in dictionaries and of which ``rows`` rows could be too much, written out."""

    def __init__(self, path: str, metadata: pq.FileMetaData, columns: frozenset[str], rows: int) -> None:
        self._path = path
        self._ends = list(accumulate(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)))
        self._row = 0
        self.columns = frozenset(
            metadata.schema.column(place).path
            for place in _places(metadata, columns)
            if metadata.schema.column(place).physical_type == _TEXT
            and not _is_nested(metadata.schema.column(place), columns)
            and any(_could_be_large(metadata, index, place, rows) for index in range(metadata.num_row_groups))
        )

    def written_out(self, batch: pa.Table) -> pa.Table:
        """The next rows with these columns as plain texts; SourceError if that would be too much of them."""
        for name in self.columns:
            column = batch[name]
            if pa.types.is_dictionary(column.type):
                self._require_few(name, sum(map(_text_bytes, column.chunks)))
                plain = column.cast(column.type.value_type)
                batch = batch.set_column(batch.schema.get_field_index(name), name, plain)
        self._row += batch.num_rows
        return batch

    def _require_few(self, name: str, size: int) -> None:
        if size > MAX_TEXT_BYTES:
            group = bisect_right(self._ends, self._row)
            raise SourceError(
                f"{self._path}: row group {group}, column {name}: the texts that are read at once have "
                f"{size / 1024**2:,.0f} MiB written out; the limit is {MAX_TEXT_BYTES // 1024**2} MiB: shorten them in "
                "the table"
            )


def _text_bytes(column: pa.DictionaryArray) -> int:
    """How many bytes the texts have that the rows stand for."""
    return pc.sum(pc.binary_length(column.dictionary).cast(pa.int64()).take(column.indices)).as_py() or 0


def _places(metadata: pq.FileMetaData, columns: frozenset[str]) -> Iterator[int]:
    """Where the columns lie; a nested one is in several places."""
    for place in range(metadata.num_columns):
        path = metadata.schema.column(place).path
        if path in columns or path.split(".", 1)[0] in columns:
            yield place


def _is_nested(column: pq.ColumnSchema, columns: frozenset[str]) -> bool:
    return column.max_repetition_level > 0 or column.path not in columns


def _bytes(metadata: pq.FileMetaData, index: int, place: int, columns: frozenset[str]) -> int:
    """What a column takes; a nested one with every value written out, each text as long as one can be."""
    chunk, column = metadata.row_group(index).column(place), metadata.schema.column(place)
    size = int(chunk.total_uncompressed_size)
    if not _is_nested(column, columns):
        return size
    width = size if column.physical_type == _TEXT else _WIDTHS.get(column.physical_type, column.length)
    return max(size, int(chunk.num_values) * width)


def _could_be_large(metadata: pq.FileMetaData, index: int, place: int, rows: int) -> bool:
    """Whether the longest text that there can be, in each of the rows, would be too much."""
    chunk = metadata.row_group(index).column(place)
    is_packed = any("DICTIONARY" in name for name in chunk.encodings)
    return is_packed and min(rows, chunk.num_values) * chunk.total_uncompressed_size > MAX_TEXT_BYTES
