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
from batch_job.parquet_bounds import PackedTexts, require_bounded, written_by_difference
from shared.errors import SourceError

_FEW_COLUMNS = 2
"""So many are read by the thread that asks. Arrow's own would not be faster, and while a library is loaded, which the
forward threads do at the same time, the system lets no new thread begin its work."""

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
            metadata = pq.read_metadata(source)
            require_bounded(path, metadata, frozenset(columns))
            texts = PackedTexts(path, metadata, frozenset(columns) - coded, rows)
            known = sorted((coded | texts.columns) - written_by_difference(metadata))
            file = pq.ParquetFile(source, metadata=metadata, read_dictionary=known)
            several = len(columns) > _FEW_COLUMNS
            for batch in file.iter_batches(batch_size=rows, columns=list(columns), use_threads=several):
                yield texts.written_out(pa.Table.from_batches([batch]))


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


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
        return "it is not UTF-8 text; write it in UTF-8"
    if "block" in str(error):
        return "a line is longer than 8 MiB, or a quote is never closed"
    return f"it is damaged or not of the format that its name says ({type(error).__name__}); write it again"
