"""Rows in chunks of one size, and which of them need not be read because their chunks are done."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

Numbered = tuple[int, pa.Table]
"""Consecutive rows, and the number of the first one."""

NONE_DONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Groups of rows of a file that lie together (None: all that it has), behind so many rows that are passed over."""

    groups: range | None
    unread: int = 0


ALL_OF_IT = Stretch(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What is left of a table whose chunks of ``size`` rows are partly ``done``, by their numbers."""

    size: int
    done: frozenset[int]

    def stretches(self, groups: Sequence[int], row: int) -> Iterator[Stretch]:
        """What must be read of a file whose groups have so many rows; its first row has the number ``row``."""
        needed = []
        for rows in groups:
            needed.append(self._needs(row, rows))
            row += rows
        unread = 0
        for is_needed, places in groupby(range(len(groups)), key=lambda place: needed[place]):
            found = list(places)
            if is_needed:
                yield Stretch(range(found[0], found[-1] + 1), unread)
                unread = 0
            else:
                unread = sum(groups[place] for place in found)
        if unread:
            yield Stretch(range(0), unread)

    def _needs(self, row: int, rows: int) -> bool:
        """Whether some of the rows are in a chunk that is not done."""
        touched = range(row // self.size, (row + rows - 1) // self.size + 1) if rows else range(0)
        return any(index not in self.done for index in touched)


EVERY_ROW = Rest(size=1, done=NONE_DONE)


def rechunked(tables: Iterator[Numbered], size: int, done: frozenset[int] = NONE_DONE) -> Iterator[Numbered]:
    """The rows in tables of ``size`` rows, each with its number among them, without those that are done."""
    waiting: list[pa.Table] = []
    index, rows = 0, 0
    for index, piece in _pieces(tables, size):
        if index in done:
            continue
        waiting.append(piece)
        rows += piece.num_rows
        if rows == size:
            yield index, pa.concat_tables(waiting)
            waiting, rows = [], 0
    if waiting:
        yield index, pa.concat_tables(waiting)


def _pieces(tables: Iterator[Numbered], size: int) -> Iterator[Numbered]:
    """Each table cut where a chunk ends."""
    for row, table in tables:
        for start in _cuts(row, table.num_rows, size):
            index = (row + start) // size
            yield index, table.slice(start, (index + 1) * size - row - start)


def _cuts(row: int, rows: int, size: int) -> Iterator[int]:
    yield 0
    yield from range(size - row % size, rows, size)
