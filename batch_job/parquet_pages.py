"""The pages of a column of a Parquet file, as the headers before them tell: their sizes, and how they are written.

The file's footer tells that too, and nothing holds it to the truth: Arrow goes by the pages. What a page's own header
says holds, since Arrow reads no more of it than that. Headers are Thrift's compact protocol, of which only whole
numbers are wanted here: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FIRST_READ_BYTES = 1024
MAX_HEADER_BYTES = 16 * 1024**2
"""The most that Arrow reads of one header."""
MAX_DEPTH = 16

TYPE, UNCOMPRESSED, COMPRESSED = 1, 2, 3
"""Of a page's header."""
DICTIONARY_PAGE = 2

_DATA, _DATA_V2 = 5, 8
_DATA_PAGES = {0, 3}
_VALUES, _ENCODING, _ENCODING_V2 = 1, 2, 4
_DIFFERENCES = 7
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = {4, 5, 6}
_MANY = 15
"""In place of a list's length, which then follows."""
_MORE = 128
"""The bit of a byte after which a number goes on."""

Fields = dict[int, Any]
"""The whole numbers and the structures of a structure, by their numbers."""


@dataclass(frozen=True, slots=True)
class Pages:
    """What there is of one column in one row group. ``largest`` is in bytes, uncompressed."""

    largest: int
    in_dictionary: bool
    by_difference: bool


class _Damaged(ValueError):
    """No header begins here."""


def pages_of(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> Pages:
    """Looks at each page's header. ArrowInvalid where there is none."""
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    place = min(start or chunk.data_page_offset, chunk.data_page_offset)
    end, left = place + chunk.total_compressed_size, chunk.num_values
    found = Pages(0, in_dictionary=False, by_difference=False)
    while left > 0 and place < end:
        header, length = _header(source, place)
        size, values, encoding = _told(header)
        if found.in_dictionary and header[TYPE] == DICTIONARY_PAGE:
            raise pa.ArrowInvalid("a second dictionary")
        found = Pages(
            max(found.largest, header[UNCOMPRESSED]),
            in_dictionary=found.in_dictionary or header[TYPE] == DICTIONARY_PAGE,
            by_difference=found.by_difference or encoding == _DIFFERENCES,
        )
        place, left = place + length + size, left - values
    return found


def _told(header: Fields) -> tuple[int, int, int | None]:
    """The bytes that lie between this header and the next, the values there, and their encoding."""
    try:
        size = header[COMPRESSED]
        if size < 0 or header[UNCOMPRESSED] < 0:
            raise pa.ArrowInvalid("a page of less than nothing")
        if header[TYPE] not in _DATA_PAGES:
            return size, 0, None
        data, encoding = (header[_DATA], _ENCODING) if _DATA in header else (header[_DATA_V2], _ENCODING_V2)
        return size, max(0, data[_VALUES]), data[encoding]
    except (KeyError, TypeError):
        raise pa.ArrowInvalid("a page without its header") from None


def _header(source: pa.NativeFile, place: int) -> tuple[Fields, int]:
    """The header that begins there, and how many bytes it has."""
    size = FIRST_READ_BYTES
    while True:
        read = source.read_at(size, place)
        reader = _Compact(read)
        try:
            return reader.structure(), reader.place
        except _Damaged:
            raise pa.ArrowInvalid("a page without its header") from None
        except IndexError:
            if len(read) < size or size >= MAX_HEADER_BYTES:
                raise pa.ArrowInvalid("a page without its header") from None
            size *= 16


def header_in(data: bytes) -> tuple[Fields, int]:
    """The header with which the data begin, and how many bytes it has. ArrowInvalid where that is no whole header."""
    reader = _Compact(data)
    try:
        return reader.structure(), reader.place
    except (_Damaged, IndexError):
        raise pa.ArrowInvalid("a page without its header") from None


class _Compact:
    """Reads structures; IndexError where the bytes end too soon."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._skips: dict[int, Callable[[int], object]] = {
            _BYTE: lambda _: self._skip(1),
            _DOUBLE: lambda _: self._skip(8),
            _BINARY: lambda _: self._skip(self._varint()),
            _LIST: self._list,
            _SET: self._list,
            _MAP: self._map,
            _STRUCT: self.structure,
            **dict.fromkeys(_INTEGERS, lambda _: self._integer()),
        }
        self.place = 0

    def structure(self, depth: int = 0) -> Fields:
        """Its numbers and structures; what else it has is stepped over."""
        fields: Fields = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            value = self._value(head & 15, depth)
            if head & 15 in {*_INTEGERS, _STRUCT}:
                fields[number] = value
        return fields

    def _value(self, kind: int, depth: int) -> object:
        if kind in {_TRUE, _FALSE}:  # in a structure, the kind is the value
            return None
        if kind not in self._skips or depth > MAX_DEPTH:
            raise _Damaged
        return self._skips[kind](depth + 1)

    def _list(self, depth: int) -> None:
        head = self._byte()
        for _ in range(head >> 4 if head >> 4 != _MANY else self._varint()):
            self._element(head & 15, depth)

    def _map(self, depth: int) -> None:
        if size := self._varint():
            kinds = self._byte()
            for _ in range(size):
                self._element(kinds >> 4, depth)
                self._element(kinds & 15, depth)

    def _element(self, kind: int, depth: int) -> None:
        if kind in {_TRUE, _FALSE}:  # in a list, each has a byte
            self._skip(1)
        else:
            self._value(kind, depth)

    def _integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            number |= (byte & ~_MORE) << shift
            if not byte & _MORE:
                return number
        raise _Damaged

    def _byte(self) -> int:
        byte = self._data[self.place]
        self.place += 1
        return byte

    def _skip(self, size: int) -> None:
        self.place += size
        if self.place > len(self._data):
            raise IndexError
