"""CSV files: every column read as text, streamed, and no line lost.

Only the empty cell is missing (``""`` too); what a text means is for the rules of the schema to say. A line that has
another number of cells than the header does not stop the file: it becomes a row of nulls, marked in ``MALFORMED``.
"""

import csv
import io
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import fs

from shared.errors import SourceError

MALFORMED = "\0malformed"
"""A boolean column beside the table's own; no header can have this name."""

BLOCK_BYTES = 8 * 1024 * 1024
"""A line longer than this is refused; it bounds what is read at once."""

MAX_MALFORMED = 100_000
"""Malformed lines in a row beyond which the file is taken for another format and refused."""

_HEADER_LINE = 1


def read_header(filesystem: fs.FileSystem, path: str) -> tuple[str, ...]:
    """The names of the columns."""
    with filesystem.open_input_stream(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        return tuple(next((cells for cells in csv.reader(text) if cells), []))


def read_csv(filesystem: fs.FileSystem, path: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The file's lines in order, as text columns and ``MALFORMED``, a bounded block at a time."""
    lines = _Malformed()
    with filesystem.open_input_stream(path) as stream:
        try:
            reader = _open(stream, columns, lines)
            for batch in reader:
                yield lines.merged(pa.Table.from_batches([batch]))
        except pa.ArrowInvalid:
            lines.require_few(path)
            raise
        yield lines.rest(reader.schema)


def _open(stream: pa.NativeFile, columns: Sequence[str], lines: "_Malformed") -> arrow_csv.CSVStreamingReader:
    return arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),  # threads lose line numbers
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lines.note),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            include_columns=list(columns),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


@dataclass(slots=True)
class _Malformed:
    """The malformed lines that the parser met, until they are put back between the rows around them."""

    waiting: list[int] = field(default_factory=list)
    """Their row numbers in the file, from 0, ascending."""
    given: int = 0
    """Rows given out so far."""
    too_many: bool = False

    def note(self, line: Any) -> str:
        """Called by the parser; the parsed lines go on without this one."""
        if len(self.waiting) >= MAX_MALFORMED:
            self.too_many = True
            return "error"
        self.waiting.append(line.number - _HEADER_LINE - 1)
        return "skip"

    def require_few(self, path: str) -> None:
        if self.too_many:
            raise SourceError(
                f"{path}: more than {MAX_MALFORMED} lines in a row have another number of cells than the header; "
                "columns are separated by commas"
            )

    def merged(self, table: pa.Table) -> pa.Table:
        """The parsed rows with the malformed lines before and between them in their places."""
        rows = np.arange(table.num_rows)
        gaps = np.array(self.waiting, dtype=np.int64) - self.given - np.arange(len(self.waiting))
        positions = rows + np.searchsorted(gaps, rows, side="right")
        last = self.given + int(positions[-1]) if len(positions) else self.given
        inside = bisect_left(self.waiting, last)
        lines, self.waiting = self.waiting[:inside], self.waiting[inside:]
        total = table.num_rows + inside
        order = np.argsort(np.concatenate((positions, np.array(lines, dtype=np.int64) - self.given)), kind="stable")
        self.given += total
        return pa.concat_tables([_flagged(table, malformed=False), _nulls(table.schema, inside)]).take(pa.array(order))

    def rest(self, schema: pa.Schema) -> pa.Table:
        """The malformed lines behind the last parsed row."""
        lines, self.waiting = self.waiting, []
        return _nulls(schema, len(lines))


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    empty = pa.table({name: pa.nulls(rows, pa.string()) for name in schema.names}, schema=schema)
    return _flagged(empty, malformed=True)


def _flagged(table: pa.Table, *, malformed: bool) -> pa.Table:
    return table.append_column(MALFORMED, pa.array(np.full(table.num_rows, malformed)))
