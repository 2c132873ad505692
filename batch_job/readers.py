"""The formats of an input file: what columns it has, and its rows in order, a bounded batch at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from batch_job.csv_lines import read_csv, read_header
from batch_job.files import InputFiles
from shared.errors import SourceError

MAX_ROW_GROUP_BYTES = 8 * 1024**3
"""The most bytes (uncompressed, of the columns that are read) of one Parquet row group."""

NONE_CODED: frozenset[str] = frozenset()


class Reader(Protocol):
    def schema(self, path: str) -> pa.Schema:
        """The columns of the file, in its order."""
        ...

    def batches(
        self, path: str, columns: Sequence[str], rows: int, coded: frozenset[str] = NONE_CODED
    ) -> Iterator[pa.Table]:
        """The file's rows in order; one batch has about ``rows`` rows, or what the format reads at once.

        ``coded`` columns of text come as dictionaries where the file has them so, which saves writing each text out.
        """
        ...


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns what a damaged or forbidden file raises into one line. Arrow's own text may quote values: it is dropped."""
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read: {_reason(error)}") from None


def open_reader(files: InputFiles) -> Reader:
    """The reader of the files' kind."""
    match files.kind:
        case "parquet":
            return _Parquet(files.filesystem)
        case "csv":
            return _Csv(files.filesystem)
        case "arrow":
            return _Arrow(files.filesystem)


@dataclass(frozen=True, slots=True)
class _Parquet:
    filesystem: fs.FileSystem

    def schema(self, path: str) -> pa.Schema:
        with self.filesystem.open_input_file(path) as source:
            return pq.ParquetFile(source).schema_arrow

    def batches(
        self, path: str, columns: Sequence[str], rows: int, coded: frozenset[str] = NONE_CODED
    ) -> Iterator[pa.Table]:
        with self.filesystem.open_input_file(path) as source:
            file = pq.ParquetFile(source, read_dictionary=sorted(coded))
            _require_bounded(path, file.metadata, frozenset(columns))
            for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
                yield pa.Table.from_batches([batch])


@dataclass(frozen=True, slots=True)
class _Csv:
    filesystem: fs.FileSystem

    def schema(self, path: str) -> pa.Schema:
        names = read_header(self.filesystem, path)
        return pa.schema([(name, pa.string()) for name in names])

    def batches(
        self,
        path: str,
        columns: Sequence[str],
        rows: int,  # noqa: ARG002 lines are read in blocks of bytes
        coded: frozenset[str] = NONE_CODED,  # noqa: ARG002 CSV has no dictionaries
    ) -> Iterator[pa.Table]:
        return read_csv(self.filesystem, path, columns)


@dataclass(frozen=True, slots=True)
class _Arrow:
    filesystem: fs.FileSystem

    def schema(self, path: str) -> pa.Schema:
        with self.filesystem.open_input_file(path) as source:
            return pa.ipc.open_file(source).schema

    def batches(
        self,
        path: str,
        columns: Sequence[str],
        rows: int,
        coded: frozenset[str] = NONE_CODED,  # noqa: ARG002 columns come as the file has them
    ) -> Iterator[pa.Table]:
        with self.filesystem.open_input_file(path) as source:
            file = pa.ipc.open_file(source)
            for index in range(file.num_record_batches):
                table = pa.Table.from_batches([file.get_batch(index).select(list(columns))])
                for start in range(0, table.num_rows, rows):
                    yield table.slice(start, rows)


def _require_bounded(path: str, metadata: pq.FileMetaData, columns: frozenset[str]) -> None:
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        chunks = (group.column(place) for place in range(group.num_columns))
        size = sum(c.total_uncompressed_size for c in chunks if _belongs(c.path_in_schema, columns))
        if size > MAX_ROW_GROUP_BYTES:
            raise SourceError(
                f"{path}: row group {index} has {size / 1024**3:.1f} GiB; the limit is "
                f"{MAX_ROW_GROUP_BYTES // 1024**3} GiB: write the file with smaller row groups"
            )


def _belongs(path: str, columns: frozenset[str]) -> bool:
    return path in columns or path.split(".", 1)[0] in columns


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
        return "it is not UTF-8 text; write it in UTF-8"
    if "block" in str(error):
        return "a line is longer than 8 MiB, or a quote is never closed"
    return f"it is damaged or not of the format that its name says ({type(error).__name__}); write it again"
