"""The input table: rows in a fixed order, in chunks, never the whole table.

The files are read in the order of their paths and the rows in the order of the files, so that a row's number (counted
after the filters) names the same row in every run over the same input. Columns that only the folders hold
(``dt=2026-11-01/``) are text. Filters are applied to what was read, the same way for every format; a CSV line that
cannot be taken apart meets no filter.
"""

import difflib
import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batch_job.chunking import ALL_OF_IT, EVERY_ROW, NONE_DONE, Numbered, Rest, Stretch, rechunked
from batch_job.column_types import agreed
from batch_job.csv_lines import MALFORMED
from batch_job.files import InputFile, InputFiles, find_files
from batch_job.readers import NONE_CODED, Reader, open_reader, reading
from batch_job.where import Where, parse_where
from shared.errors import ColumnMissing, SettingsError, SourceError
from shared.ids import id_column, require_id_type

READ_ROWS = 65_536
"""The most rows of one read."""

_CODED = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows of the table are scored: those of one partition (``key=value``) or a range of them
    (``key=first..last``), that meet a condition (``batch_job.where``), whose ids a file lists (one a line), and only
    the first so many of these."""

    partition: str | None = None
    where: str | None = None
    limit: int | None = None
    entities: Path | None = None

    @property
    def everything(self) -> bool:
        """Whether it leaves no row out."""
        return self == EVERYTHING


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive rows. ``malformed`` [rows] marks lines that could not be taken apart: their cells are null."""

    index: int
    first_row: int
    table: pa.Table
    malformed: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return int(self.table.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What tells the rows of one entity apart: the id (null where refused), and the ``order_by`` column if asked."""

    ids: pa.Array
    order: pa.ChunkedArray | None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table that is there, can be read, and has the columns that are needed."""

    files: InputFiles
    selection: Selection
    reader: Reader
    schema: pa.Schema
    """Every column that is read, with the type that it is read as."""
    entity: str
    columns: tuple[str, ...]
    """The columns of a chunk: the id and the features."""
    coded: frozenset[str]
    """Those of them that come as dictionaries: each distinct text is there once."""
    order_by: str | None
    where: Where | None
    wanted: pa.Array | None
    """The ids that ``entities`` lists."""

    @property
    def as_of(self) -> int:
        """How old the data is, in epoch seconds."""
        return self.files.as_of

    def fingerprint(self) -> str:
        """Digest of the input files. Asked again after a run, it tells whether they were changed meanwhile."""
        return find_files(self.files.table).only(self.selection.partition).digest

    def filters(self) -> str:
        """Digest of what selects the rows."""
        wanted = "" if self.wanted is None else "\n".join(self.wanted.to_pylist())
        parts = (self.selection.partition, self.selection.where, self.selection.limit, self.wanted is None, wanted)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def chunks(self, size: int, *, done: frozenset[int] = NONE_DONE) -> Iterator[Chunk]:
        """All rows, in order, in chunks of exactly ``size`` rows, without those that are ``done``; the last one may be
        shorter.

        Of what is done, nothing is read where the format has groups of rows and no filter is needed to number them.
        """
        rows = self._rows(self.columns, min(size, READ_ROWS), self.coded, Rest(size=size, done=done))
        for index, table in rechunked(rows, size, done):
            flags = table[MALFORMED].to_numpy() if MALFORMED in table.column_names else np.zeros(table.num_rows, bool)
            yield Chunk(index=index, first_row=index * size, table=table.select(self.columns), malformed=flags)

    def id_batches(self, *, ordered: bool = True) -> Iterator[Keys]:
        """The ids of all rows, in order; with the ``order_by`` column if they are to be ``ordered``."""
        order_by = self.order_by if ordered else None
        columns = [self.entity] if order_by is None else [self.entity, order_by]
        for _, table in self._rows(columns, READ_ROWS):
            order = None if order_by is None else table[order_by]
            yield Keys(ids=id_column(table[self.entity], self.entity).text, order=order)

    def _rows(
        self, columns: Sequence[str], rows: int, coded: frozenset[str] = NONE_CODED, rest: Rest = EVERY_ROW
    ) -> Iterator[Numbered]:
        """The rows that are kept, with the number of the first of each table."""
        needed = list(dict.fromkeys([self.entity, *columns, *(self.where.columns if self.where else ())]))
        row, limit = 0, self.selection.limit or sys.maxsize
        for file in self.files.files:
            for stretch in self._stretches(file, row, rest):
                row += stretch.unread
                if row >= limit:
                    return
                for table in self._read(file, needed, rows, coded, stretch.groups):
                    kept = self._filtered(table).slice(0, limit - row)
                    if kept.num_rows:
                        yield row, kept
                    row += kept.num_rows
                    if row >= limit:
                        return

    def _stretches(self, file: InputFile, row: int, rest: Rest) -> Iterator[Stretch]:
        """What of the file is read. Rows that a filter leaves out have no number, so that none can be passed over."""
        groups = None
        if rest.done and self.where is None and self.wanted is None:
            with reading(file.path):
                groups = self.reader.group_rows(file.path)
        return iter([ALL_OF_IT]) if groups is None else rest.stretches(groups, row)

    def _read(
        self, file: InputFile, columns: Sequence[str], rows: int, coded: frozenset[str], groups: range | None
    ) -> Iterator[pa.Table]:
        own = [name for name in columns if name not in file.partitions]
        with reading(file.path):
            for table in self.reader.batches(file.path, own, rows, coded, groups):
                yield self._conformed(table, file, columns, coded)

    def _conformed(self, table: pa.Table, file: InputFile, columns: Sequence[str], coded: frozenset[str]) -> pa.Table:
        """The columns in the asked order, the folder's among them, in the types that they have throughout the table."""
        for name in columns:
            if name in file.partitions:
                table = table.append_column(name, pa.repeat(pa.scalar(file.partitions[name], pa.string()), len(table)))
        extra = [MALFORMED] if MALFORMED in table.column_names else []
        kinds = {name: self.schema.field(name).type for name in columns} | {name: pa.bool_() for name in extra}
        try:
            return pa.table({name: _as(table[name], kind, coded=name in coded) for name, kind in kinds.items()})
        except pa.ArrowInvalid:
            raise SourceError(
                f"{file.path}: a whole number does not fit the float64 that other files have in its column; "
                "write the column with one type"
            ) from None

    def _filtered(self, table: pa.Table) -> pa.Table:
        if self.where is not None:
            table = self.where.apply(table)
        if self.wanted is not None:
            ids = id_column(table[self.entity], self.entity).text
            table = table.filter(pc.is_in(ids, value_set=self.wanted))
        return table


def open_source(
    path: str,
    *,
    entity: str,
    features: Iterable[str],
    coded: Iterable[str] = (),
    order_by: str | None = None,
    selection: Selection = EVERYTHING,
) -> Source:
    """Looks at a table before anything is scored. ``coded``: the features that have few distinct values.

    TableNotFound, ColumnMissing, ColumnRefused or SourceError say what is wrong with it; SettingsError says what is
    wrong with the selection.
    """
    where = None if selection.where is None else parse_where(selection.where)
    if selection.limit is not None and selection.limit < 1:
        raise SettingsError("--limit: at least 1 row")
    files = find_files(path).only(selection.partition)
    reader = open_reader(files)
    columns = tuple(dict.fromkeys([entity, *features]))
    needed = dict.fromkeys([*columns, *([order_by] if order_by else []), *(where.columns if where else ())])
    schema = _schema(files, reader, tuple(needed))
    require_id_type(schema.field(entity).type, entity)
    if where is not None:
        where.apply(schema.empty_table())  # a column and a literal that do not fit are found before an hour's work
    compared = {entity, order_by, *(where.columns if where else ())}
    texts = frozenset(name for name in coded if name not in compared and schema.field(name).type == pa.string())
    wanted = None if selection.entities is None else _read_entities(selection.entities)
    return Source(
        files=files,
        selection=selection,
        reader=reader,
        schema=schema,
        entity=entity,
        columns=columns,
        coded=texts,
        order_by=order_by,
        where=where,
        wanted=wanted,
    )


def _as(column: pa.ChunkedArray, kind: pa.DataType, *, coded: bool) -> pa.ChunkedArray:
    """The column in the type that it has throughout the table, as a dictionary if it comes so."""
    if coded and column.type == _CODED:
        return column
    column = column.cast(kind)
    return column.dictionary_encode() if coded else column


def _schema(files: InputFiles, reader: Reader, needed: Sequence[str]) -> pa.Schema:
    kinds: dict[str, dict[str, pa.DataType]] = {name: {} for name in needed}
    for file in files.files:
        with reading(file.path):
            own = reader.schema(file.path)
        for name in needed:
            kinds[name][file.path] = pa.string() if name in file.partitions else _type_of(name, own, file)
    return pa.schema([(name, agreed(name, found)) for name, found in kinds.items()])


def _type_of(name: str, own: pa.Schema, file: InputFile) -> pa.DataType:
    count = own.names.count(name)
    if count > 1:
        raise SourceError(f"{file.path}: column {name} is there {count} times; write it once")
    if count == 1:
        return own.field(name).type
    known = [one if one.isprintable() else repr(one) for one in (*own.names, *file.partitions)]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"near it: {', '.join(near)}" if near else f"it has {', '.join(sorted(known)[:20]) or 'none'}"
    raise ColumnMissing(f"{file.path}: column {name} is missing; {hint[:500]}")


def _read_entities(path: Path) -> pa.Array:
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")  # splitlines knows more ends than files do
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SourceError(f"--entities {path}: cannot be read: {reason}") from None
    ids = [line.removesuffix("\r") for line in lines if line.strip()]
    if not ids:
        raise SourceError(f"--entities {path}: lists no ids; write one a line")
    return pa.array(ids, pa.string())
