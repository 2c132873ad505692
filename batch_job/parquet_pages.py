"""The pages of a column of a Parquet file, as the headers before them tell: their sizes, and how they are written.

The file's footer tells that too, and nothing holds it to the truth: Arrow goes by the pages. What a page's own header
says holds, since Arrow reads no more of it than that. Headers are Thrift's compact protocol, of which only whole
numbers are wanted here: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

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
_BINARY, _MAP, _STRUCT = 8, 11, 12
_BOOLEANS, _INTEGERS, _LISTS = frozenset({1, 2}), frozenset({4, 5, 6}), frozenset({9, 10})
_WIDTHS = {3: 1, 7: 8}
"""Kinds of values by their numbers; of those that have always as many bytes, how many."""
_MANY = 15
"""In place of a list's length, which then follows."""
_MORE = 128
"""A byte of so much and more is not a number's last one."""

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
        try:
            return _structure(read, 0, 0)
        except _Damaged:
            raise pa.ArrowInvalid("a page without its header") from None
        except IndexError:
            if len(read) < size or size >= MAX_HEADER_BYTES:
                raise pa.ArrowInvalid("a page without its header") from None
            size *= 16


def header_in(data: bytes) -> tuple[Fields, int]:
    """The header with which the data begin, and how many bytes it has. ArrowInvalid where that is no whole header."""
    try:
        return _structure(data, 0, 0)
    except (_Damaged, IndexError):
        raise pa.ArrowInvalid("a page without its header") from None


def _structure(data: bytes, place: int, depth: int) -> tuple[Fields, int]:
    """The numbers and structures of the structure at that place, and where it ends; what else it has is stepped over.

    A file has thousands of them. IndexError where the bytes end too soon.
    """
    fields: Fields = {}
    number = 0
    while head := data[place]:
        place += 1
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, place = _integer(data, place)
        if kind in _INTEGERS:
            if data[place] < _MORE:  # most numbers have one byte
                value, place = data[place], place + 1
                fields[number] = (value >> 1) ^ -(value & 1)
            else:
                fields[number], place = _integer(data, place)
        elif kind == _STRUCT:
            fields[number], place = _inner(data, place, depth)
        elif kind not in _BOOLEANS:  # in a structure, the kind of a boolean is its value
            place = _behind(kind, data, place, depth)
    return fields, place + 1


def _inner(data: bytes, place: int, depth: int) -> tuple[Fields, int]:
    if depth >= MAX_DEPTH:
        raise _Damaged
    return _structure(data, place, depth + 1)


def _behind(kind: int, data: bytes, place: int, depth: int) -> int:
    """Where a value of that kind ends."""
    if kind in _INTEGERS:
        return _varint(data, place)[1]
    if kind in _WIDTHS:
        return _within(data, place + _WIDTHS[kind])
    if kind == _BINARY:
        size, place = _varint(data, place)
        return _within(data, place + size)
    if kind in _LISTS:
        return _behind_list(data, place, depth)
    if kind == _MAP:
        return _behind_map(data, place, depth)
    if kind == _STRUCT:
        return _inner(data, place, depth)[1]
    raise _Damaged


def _behind_list(data: bytes, place: int, depth: int) -> int:
    head, place = data[place], place + 1
    size = head >> 4
    if size == _MANY:
        size, place = _varint(data, place)
    for _ in range(size):
        place = _behind_element(head & 15, data, place, depth)
    return place


def _behind_map(data: bytes, place: int, depth: int) -> int:
    size, place = _varint(data, place)
    if size:
        kinds, place = data[place], place + 1
        for _ in range(size):
            place = _behind_element(kinds >> 4, data, place, depth)
            place = _behind_element(kinds & 15, data, place, depth)
    return place


def _behind_element(kind: int, data: bytes, place: int, depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise _Damaged
    if kind in _BOOLEANS:  # here, each has a byte
        return _within(data, place + 1)
    return _behind(kind, data, place, depth + 1)


def _within(data: bytes, place: int) -> int:
    if place > len(data):
        raise IndexError
    return place


def _integer(data: bytes, place: int) -> tuple[int, int]:
    """The number there, and where it ends."""
    value, place = _varint(data, place)
    return (value >> 1) ^ -(value & 1), place


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        byte, place = data[place], place + 1
        number |= (byte & ~_MORE) << shift
        if byte < _MORE:
            return number, place
    raise _Damaged
