"""The formats of an input file: what columns it has, and its rows in order, a bounded batch at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from batch_job.csv_lines import read_csv, read_header
from batch_job.files import InputFiles
from batch_job.parquet_bounds import PackedTexts, looked_at, require_bounded, text_pages, written_by_difference
from batch_job.parquet_dictionaries import ShortTexts
from shared.errors import SourceError
from shared.host import cores
from shared.parquet_footer import require_footer

_FEW_COLUMNS = 2
"""So many are read by the thread that asks. Arrow's own would not be faster, and while a library is loaded, which the
forward threads do at the same time, the system lets no new thread begin its work."""

_FEW_CORES = 2
"""So many are at work without Arrow's threads, since rows are scored and written at the same time: more threads would
only take turns, which costs a tenth of the whole run."""

NONE_CODED: frozenset[str] = frozenset()


class Reader(Protocol):
    def schema(self, path: str) -> pa.Schema:
        """The columns of the file, in its order."""
        ...

    def group_rows(self, path: str) -> Sequence[int] | None:
        """How many rows each group of rows has that can be left unread; None where the format has no such groups."""
        ...

    def batches(
        self,
        path: str,
        columns: Sequence[str],
        rows: int,
        coded: frozenset[str] = NONE_CODED,
        groups: range | None = None,
    ) -> Iterator[pa.Table]:
        """The file's rows in order; one batch has about ``rows`` rows, or what the format reads at once.

        ``coded`` columns of text come as dictionaries where the file has them so, which saves writing each text out.
        ``groups``: only these of ``group_rows``; None: all of them.
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
    short_texts: ShortTexts = field(default_factory=ShortTexts, repr=False)

    def schema(self, path: str) -> pa.Schema:
        with self.filesystem.open_input_file(path) as source:
            return pq.ParquetFile(source).schema_arrow

    def group_rows(self, path: str) -> Sequence[int]:
        with self.filesystem.open_input_file(path) as source:
            return _group_rows(pq.read_metadata(source))

    def batches(
        self,
        path: str,
        columns: Sequence[str],
        rows: int,
        coded: frozenset[str] = NONE_CODED,
        groups: range | None = None,
    ) -> Iterator[pa.Table]:
        with self.filesystem.open_input_file(path) as source:
            metadata = pq.read_metadata(source)
            require_footer(metadata, source.size(), columns)
            require_bounded(path, metadata, frozenset(columns))
            pages = text_pages(source, metadata, frozenset(columns))
            short = self.short_texts.among(path, source, metadata, frozenset(columns) - coded, rows)
            asked = range(metadata.num_row_groups) if groups is None else groups
            before = sum(_group_rows(metadata)[: asked.start])
            packed = {name: pages[name] for name in pages.keys() - coded - short}
            texts = PackedTexts(path, metadata, packed, rows, first_row=before)
            known = sorted((coded | texts.columns) - written_by_difference(pages))
            file = pq.ParquetFile(source, metadata=metadata, read_dictionary=known)
            many = len(columns) > _FEW_COLUMNS and cores() > _FEW_CORES
            batches = file.iter_batches(rows, list(asked), list(columns), use_threads=many)
            looks = looked_at(path, file, pages, rows, asked, first_row=before)
            for _, batch in zip(looks, batches, strict=False):
                yield texts.written_out(pa.Table.from_batches([batch]))


@dataclass(frozen=True, slots=True)
class _Csv:
    filesystem: fs.FileSystem

    def schema(self, path: str) -> pa.Schema:
        names = read_header(self.filesystem, path)
        return pa.schema([(name, pa.string()) for name in names])

    def group_rows(self, path: str) -> None:  # noqa: ARG002 where a line begins is known when the one before was read
        return None

    def batches(
        self,
        path: str,
        columns: Sequence[str],
        rows: int,  # noqa: ARG002 lines are read in blocks of bytes
        coded: frozenset[str] = NONE_CODED,  # noqa: ARG002 CSV has no dictionaries
        groups: range | None = None,  # noqa: ARG002 and no groups
    ) -> Iterator[pa.Table]:
        return read_csv(self.filesystem, path, columns)


@dataclass(frozen=True, slots=True)
class _Arrow:
    filesystem: fs.FileSystem

    def schema(self, path: str) -> pa.Schema:
        with self.filesystem.open_input_file(path) as source:
            return pa.ipc.open_file(source).schema

    def group_rows(self, path: str) -> None:  # noqa: ARG002 see batches
        return None

    def batches(
        self,
        path: str,
        columns: Sequence[str],
        rows: int,
        coded: frozenset[str] = NONE_CODED,  # noqa: ARG002 columns come as the file has them
        groups: range | None = None,  # noqa: ARG002 how many rows a batch has is known when it was read
    ) -> Iterator[pa.Table]:
        with self.filesystem.open_input_file(path) as source:
            file = pa.ipc.open_file(source)
            for index in range(file.num_record_batches):
                table = pa.Table.from_batches([file.get_batch(index).select(list(columns))])
                for start in range(0, table.num_rows, rows):
                    yield table.slice(start, rows)


def _group_rows(metadata: pq.FileMetaData) -> list[int]:
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
        return "it is not UTF-8 text; write it in UTF-8"
    if "block" in str(error):
        return "a line is longer than 8 MiB, or a quote is never closed"
    return f"it is damaged or not of the format that its name says ({type(error).__name__}); write it again"
