"""How much memory a Parquet file may take: known before it is taken, however small the file is.

A file says how many bytes its columns have uncompressed, and that is still packed: a text that a thousand rows share
stands there once, in a dictionary, and so do a thousand equal numbers of a list. So lists are counted by their
numbers, and texts of which a batch could become too large are read as they lie there and measured before they are
written out. Of texts that are written as what differs from the one before, Arrow has nothing but the whole texts: of
those so few rows are looked at together that they are never too much, in advance of the rows that are read at once.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, repeat

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batch_job.parquet_pages import Pages, pages_of
from shared.errors import SourceError

TextPages = Mapping[str, Sequence[Pages]]
"""Of each column of text that is not within another, its pages in each row group."""

MAX_ROW_GROUP_BYTES = 8 * 1024**3
"""The most bytes (uncompressed, of the columns that are read) of one Parquet row group."""

MAX_TEXT_BYTES = 256 * 1024**2
"""The most bytes of one column's texts, written out, in the rows that are read at once."""

MAX_STEP_BYTES = 64 * 1024**2
"""The most bytes of texts, written out, that are looked at together in advance."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_TEXT = "BYTE_ARRAY"


def require_bounded(path: str, metadata: pq.FileMetaData, columns: frozenset[str]) -> None:
    """SourceError if one row group of the columns is too large to be read."""
    for index in range(metadata.num_row_groups):
        size = sum(_bytes(metadata, index, place, columns) for place in _places(metadata, columns))
        if size > MAX_ROW_GROUP_BYTES:
            raise SourceError(
                f"{path}: row group {index} has {size / 1024**3:.1f} GiB; the limit is "
                f"{MAX_ROW_GROUP_BYTES // 1024**3} GiB: write the file with smaller row groups"
            )


def text_pages(source: pa.NativeFile, metadata: pq.FileMetaData, columns: frozenset[str]) -> TextPages:
    """Looks at the pages of those of the columns that are texts."""
    groups = range(metadata.num_row_groups)
    return {
        metadata.schema.column(place).path: [
            pages_of(source, metadata.row_group(index).column(place)) for index in groups
        ]
        for place in _places(metadata, columns)
        if metadata.schema.column(place).physical_type == _TEXT
        and not _is_nested(metadata.schema.column(place), columns)
    }


def written_by_difference(pages: TextPages) -> frozenset[str]:
    """The columns whose texts are written as what differs from the one before: Arrow reads no dictionaries of those."""
    return frozenset(name for name, groups in pages.items() if any(one.by_difference for one in groups))


def looked_at(
    path: str, file: pq.ParquetFile, pages: TextPages, rows: int, groups: range, *, first_row: int = 0
) -> Iterator[None]:
    """Steps once for each ``rows`` rows of the row groups, after a look at what they take; SourceError where that would
    be too much."""
    names = sorted(written_by_difference(pages))
    place = _Place(path, file.metadata, first_row)
    looks = _look(place, file, {name: pages[name] for name in names}, rows, groups) if names else ()
    return chain(looks, repeat(None))


def _look(place: "_Place", file: pq.ParquetFile, pages: TextPages, rows: int, groups: range) -> Iterator[None]:
    windows = {name: _Window(rows) for name in pages}
    ahead, step = 0, min(rows, _step(place, pages))
    for batch in file.iter_batches(step, list(groups), list(pages), use_threads=False):
        for name, window in windows.items():
            place.require_few(name, window.add(batch.num_rows, batch[name].nbytes))
        place.passed(batch.num_rows)
        ahead += batch.num_rows
        if ahead >= rows:
            ahead -= rows
            yield
    yield


def _step(place: "_Place", pages: TextPages) -> int:
    """So many rows are never too much, whatever their texts are: no text is longer than its page."""
    for name, groups in pages.items():
        for group, one in enumerate(groups):
            if one.largest > MAX_TEXT_BYTES:
                raise place.refusal(group, name, "a page has", one.largest, "write the file with smaller pages")
    largest = max(one.largest for groups in pages.values() for one in groups)
    return max(1, MAX_STEP_BYTES // max(1, largest * len(pages)))


class _Window:
    """What the last so many rows take, or a few rows more."""

    def __init__(self, rows: int) -> None:
        self._steps: deque[tuple[int, int]] = deque()
        self._most, self._rows, self._size = rows, 0, 0

    def add(self, rows: int, size: int) -> int:
        """Goes on by a step; the bytes."""
        self._steps.append((rows, size))
        self._rows, self._size = self._rows + rows, self._size + size
        while self._rows - self._steps[0][0] >= self._most:
            gone, less = self._steps.popleft()
            self._rows, self._size = self._rows - gone, self._size - less
        return self._size


class PackedTexts:
    """The columns of text that stand in dictionaries and of which ``rows`` rows could be too much, written out."""

    def __init__(
        self, path: str, metadata: pq.FileMetaData, pages: TextPages, rows: int, *, first_row: int = 0
    ) -> None:
        self._place = _Place(path, metadata, first_row)
        self.columns = frozenset(
            name
            for name, groups in pages.items()
            if any(one.in_dictionary and rows * one.largest > MAX_TEXT_BYTES for one in groups)
        )

    def written_out(self, batch: pa.Table) -> pa.Table:
        """The next rows with these columns as plain texts; SourceError if that would be too much of them."""
        for name in self.columns:
            column = batch[name]
            if pa.types.is_dictionary(column.type):
                self._place.require_few(name, sum(map(_text_bytes, column.chunks)))
                plain = column.cast(column.type.value_type)
                batch = batch.set_column(batch.schema.get_field_index(name), name, plain)
        self._place.passed(batch.num_rows)
        return batch


class _Place:
    """Where in a file one is, so that a refusal can name it."""

    def __init__(self, path: str, metadata: pq.FileMetaData, first_row: int) -> None:
        self._path = path
        self._ends = list(accumulate(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)))
        self._row = first_row

    def passed(self, rows: int) -> None:
        self._row += rows

    def require_few(self, name: str, size: int) -> None:
        """SourceError if the column's texts in the rows that are read at once are too much."""
        if size > MAX_TEXT_BYTES:
            group = bisect_right(self._ends, self._row)
            what = "written out, the texts that are read at once have"
            raise self.refusal(group, name, what, size, "shorten them in the table")

    def refusal(self, group: int, name: str, what: str, size: int, advice: str) -> SourceError:
        return SourceError(
            f"{self._path}: row group {group}, column {name}: {what} {size / 1024**2:,.0f} MiB; "
            f"the limit is {MAX_TEXT_BYTES // 1024**2} MiB: {advice}"
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
