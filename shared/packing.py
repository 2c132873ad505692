"""Rows packed as bytes, and joined into the inputs of a pass: aligned, and filled up to whole tiles.

NumPy needs longer to be told of one row, to copy it to the other rows of a tile, and to copy that to where torch wants
it, than all decoding takes. Packed by ``struct``, a row is a few bytes: to repeat them costs nothing.
"""

import ctypes
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self

import numpy as np

from shared.memory import ALIGNED, Array, padded
from shared.row_reader import Line

_MOST_BYTES = 16 * 1024
"""Of one row, filled up: what waits for a pass must stay small, whatever the tile."""

_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)


class RowPacking:
    """For rows of ``dense`` numbers and ``codes`` codes, and passes of multiples of ``tile`` rows. Threads share it."""

    def __init__(self, dense: int, codes: int, tile: int = 1) -> None:
        self._widths = (dense, codes)
        self.tile = tile
        self._one = _block(dense, codes, tile)

    def for_tiles(self, rows: int) -> Self:
        """The same for passes of multiples of so many rows; filled up by the passes themselves where rows are wide."""
        dense, codes = self._widths
        row_bytes = dense * _FLOAT32.itemsize + codes * _INT64.itemsize
        return type(self)(dense, codes, rows if rows * row_bytes <= _MOST_BYTES else 1)

    def held(self) -> "Held":
        """Memory for one row at a time, filled up."""
        return Held(self._one, self.tile)

    def joined(self, lines: Sequence[Line]) -> tuple[Array, Array, tuple[Array, ...]]:
        """The numbers [n, dense], the codes [n, codes], and the inputs that they begin, filled up with the last row."""
        count, tile = len(lines), self.tile
        if count == 1:
            block, size = self._one, tile
            dense, codes = lines[0]
            numbers, categories = block.filled(dense * tile, codes * tile)
        else:
            size = -(-count // tile) * tile
            block = _block(*self._widths, size)
            every = [*lines, *[lines[-1]] * (size - count)] if count else []
            numbers, categories = block.filled(
                b"".join([line[0] for line in every]), b"".join([line[1] for line in every])
            )
        return numbers[:count], categories[:count], block.inputs(numbers, categories)


class Held:
    """Memory for the inputs of a pass in which all rows are one. A thread fills it again and again."""

    def __init__(self, block: "_Block", rows: int) -> None:
        self._rows = rows
        self._memory, self._start = block.new()
        self._put = block.put
        self.inputs = block.inputs(*block.arrays(self._memory, self._start))

    def fill(self, line: Line) -> None:
        dense, codes = line
        self._put(self._memory, self._start, dense * self._rows, codes * self._rows)


class _Block:
    """How the numbers and codes of so many rows lie in one piece of memory."""

    def __init__(self, dense: int, codes: int, rows: int) -> None:
        self._shapes = ((rows, dense), (rows, codes))
        first, second = rows * dense * _FLOAT32.itemsize, rows * codes * _INT64.itemsize
        self._second = padded(first)
        self.put = struct.Struct(f"={first}s{self._second - first}x{second}s").pack_into
        self._memory = ctypes.c_char * (self._second + second + ALIGNED)
        self._has_both = bool(dense and codes)

    def new(self) -> tuple[Any, int]:
        """New memory, and where in it the block begins."""
        memory: Any = self._memory()
        return memory, -ctypes.addressof(memory) % ALIGNED  # NumPy takes ten times as long to tell an address

    def arrays(self, memory: Any, start: int) -> tuple[Array, Array]:
        """The memory as the two arrays that it holds."""
        numbers, categories = self._shapes
        return (
            np.ndarray(numbers, _FLOAT32, memory, start),
            np.ndarray(categories, _INT64, memory, start + self._second),
        )

    def filled(self, dense: bytes, codes: bytes) -> tuple[Array, Array]:
        """New memory with these bytes in it, as the two arrays that they are."""
        memory, start = self.new()
        self.put(memory, start, dense, codes)
        return self.arrays(memory, start)

    def inputs(self, numbers: Array, categories: Array) -> tuple[Array, ...]:
        """Those of the two that the graph takes: not one without columns."""
        if self._has_both:
            return numbers, categories
        return tuple(part for part in (numbers, categories) if part.shape[1])


@lru_cache(maxsize=128)
def _block(dense: int, codes: int, rows: int) -> _Block:
    """Made once: ctypes takes longer to make a type of memory than to fill it."""
    return _Block(dense, codes, rows)
