"""Memory that begins where torch's own does, so that torch takes it as it is.

Products may round by where in memory their operands begin. So every input of a graph is copied to a multiple of
``ALIGNED`` bytes.
"""

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

ALIGNED = 64

Array = np.ndarray[Any, np.dtype[Any]]

Shapes = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]
"""Of each array its shape and dtype."""


def aligned(shapes: Shapes) -> list[Array]:
    """Arrays of these shapes and dtypes in one block of new memory, each aligned. It is freed with the last of them."""
    return laid(block_for(extent(shapes)), shapes)


def laid(block: Array, shapes: Shapes) -> list[Array]:
    """The same in a block that is there, from ``block_for`` as many bytes as their ``extent``."""
    sizes = [padded(prod(shape) * dtype.itemsize) for shape, dtype in shapes]
    starts = accumulate(sizes, initial=-address(block) % ALIGNED)
    return [np.ndarray(shape, dtype, block, start) for (shape, dtype), start in zip(shapes, starts, strict=False)]


def block_for(size: int) -> Array:
    """New memory for so many bytes from an aligned place on. The system gives it where it is first written to."""
    return np.empty(size + ALIGNED, np.uint8)


def extent(shapes: Shapes) -> int:
    """The bytes that such arrays take together."""
    return sum(padded(prod(shape) * dtype.itemsize) for shape, dtype in shapes)


def padded(size: int) -> int:
    """So many bytes, and those up to the next place where something aligned may begin."""
    return -(-size // ALIGNED) * ALIGNED


def address(block: Any) -> int:
    """Where a writable array begins, in a tenth of the time that NumPy takes to tell it."""
    return ctypes.addressof(ctypes.c_char.from_buffer(block))
