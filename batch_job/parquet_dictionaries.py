"""How long the texts are that stand in the dictionary of a Parquet column: known before any row is read.

A column has one dictionary at most, on a page of its own before all rows, with each text's length before it. Where the
longest one in every row would be little, the rows can be read as they are; else they must be measured first, which
takes four times as long where nearly every row has a text of its own, as ids have. What is said here is what the page
holds, not what the file's footer says of it.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from struct import Struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batch_job import parquet_bounds
from batch_job.parquet_pages import COMPRESSED, DICTIONARY_PAGE, TYPE, UNCOMPRESSED, header_in

_MAX_HEADER_BYTES = 256
_DICTIONARY, _ENCODING = 7, 2
_PLAIN = (0, 2)
_LENGTH = Struct("<i")
_MAX_PAGE_BYTES = 64 * 1024**2
_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd"}


class ShortTexts:
    """Columns of text of which a batch is surely little. What was seen of a file is known when it is read again."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], int | None] = {}

    def among(
        self, path: str, source: pa.NativeFile, metadata: pq.FileMetaData, columns: frozenset[str], rows: int
    ) -> frozenset[str]:
        """Those of the columns that have dictionaries, and in ``rows`` rows no more than is allowed there."""
        found = set()
        for place in range(metadata.num_columns):
            name = metadata.schema.column(place).path
            if name not in columns or metadata.schema.column(place).physical_type != "BYTE_ARRAY":
                continue
            if (path, name) not in self._seen:
                self._seen[path, name] = _longest_in_file(source, metadata, place)
            longest = self._seen[path, name]
            if longest is not None and rows * longest + _most_bytes(metadata, place) <= parquet_bounds.MAX_TEXT_BYTES:
                found.add(name)
        return frozenset(found)


def _longest_in_file(source: pa.NativeFile, metadata: pq.FileMetaData, place: int) -> int | None:
    longest = 0
    for index in range(metadata.num_row_groups):
        length = longest_text(source, metadata.row_group(index).column(place))
        if length is None:
            return None
        longest = max(longest, length)
    return longest


def _most_bytes(metadata: pq.FileMetaData, place: int) -> int:
    """What stands beside a dictionary, written out, is in the size that the file has."""
    sizes = (metadata.row_group(i).column(place).total_uncompressed_size for i in range(metadata.num_row_groups))
    return max(sizes, default=0)


def longest_text(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> int | None:
    """The bytes of the longest text of the dictionary; None where it cannot be known, or is not worth a look."""
    start = chunk.dictionary_page_offset or 0
    if not 0 < start < chunk.data_page_offset <= start + _MAX_PAGE_BYTES:
        return None
    try:
        read = source.read_at(chunk.data_page_offset - start, start)  # at once: far away, each reading takes its time
        header, size = header_in(read[:_MAX_HEADER_BYTES])
        page, plain = header[UNCOMPRESSED], header[_DICTIONARY][_ENCODING] in _PLAIN
        if header[TYPE] != DICTIONARY_PAGE or not plain or not 0 <= page <= _MAX_PAGE_BYTES:
            return None
        return _longest(_unpacked(read[size : size + header[COMPRESSED]], page, chunk.compression))
    except (KeyError, TypeError, IndexError, OSError, pa.ArrowException):
        return None  # whatever is wrong with it, the one who reads the rows finds out


def _unpacked(data: bytes, size: int, compression: str) -> bytes:
    if compression == "UNCOMPRESSED":
        return data[:size]
    unpacked: bytes = pa.Codec(_CODECS[compression]).decompress(data, decompressed_size=size, asbytes=True)
    return unpacked


def _longest(page: bytes) -> int | None:
    """Of texts with their lengths before them. IndexError where the lengths do not come out."""
    place, longest = 0, 0
    if page and (size := _one_length(page)) is not None:
        return size
    while place < len(page):
        if place + _LENGTH.size > len(page):
            raise IndexError
        (size,) = _LENGTH.unpack_from(page, place)
        if size < 0:
            raise IndexError
        longest = max(longest, size)
        place += _LENGTH.size + size
    if place != len(page):
        raise IndexError
    return longest


def _one_length(page: bytes) -> int | None:
    """The length of all texts, if it is the same: ids of one model mostly are as long as one another."""
    step = _LENGTH.size + int.from_bytes(page[: _LENGTH.size], "little")
    if len(page) % step:
        return None
    lengths = np.ndarray((len(page) // step,), "<u4", page, strides=(step,))
    return step - _LENGTH.size if (lengths == step - _LENGTH.size).all() else None
