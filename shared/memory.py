"""Memory that begins where torch's own does, so that torch takes it as it is.

Products may round by where in memory their operands begin. So every input of a graph begins at a multiple of
``ALIGNED`` bytes; one that does not is copied first, which costs more than to place it well at once.
"""

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

ALIGNED = 64

Array = np.ndarray[Any, np.dtype[Any]]


def aligned(shapes: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[Array]:
    """Arrays of these shapes and dtypes in one block of new memory, each aligned. It is freed with the last of them."""
    sizes = [padded(prod(shape) * dtype.itemsize) for shape, dtype in shapes]
    block = np.empty(sum(sizes) + ALIGNED, np.uint8)
    first = -address(block) % ALIGNED
    starts = accumulate(sizes, initial=first)
    return [np.ndarray(shape, dtype, block, start) for (shape, dtype), start in zip(shapes, starts, strict=False)]


def padded(size: int) -> int:
    """So many bytes, and those up to the next place where something aligned may begin."""
    return -(-size // ALIGNED) * ALIGNED


def address(block: Any) -> int:
    """Where a writable array begins, in a tenth of the time that NumPy takes to tell it."""
    return ctypes.addressof(ctypes.c_char.from_buffer(block))
