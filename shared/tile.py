"""Tiles: the numbers of rows with which a graph may be run, so that a row's bits do not depend on its company.

Floating-point results depend on the shape of the batch: a kernel for one row adds up in another order than a kernel
for a thousand. For most models there is a number of rows, the tile, all of whose multiples agree bit for bit. It is
searched for when a bundle is built, tried again on each host that loads it, and every forward pass is padded up to a
multiple of it. Where there is none, the graph always runs exactly ``rows`` rows.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from shared.errors import NotCertified, WrongShape

FORWARD_ROWS = 1024
"""The most rows of one forward pass: throughput does not grow beyond it, memory does."""

CANDIDATES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FIXED = (256, 64, 16, 1)

_SLOW_SECONDS = 0.25  # a pass is kept below this where it can be: a slow model takes fewer rows at a time
_TIMINGS = 3  # a pass is slow when it is so each time: a busy machine is no slow model
_ROUNDING = {"rtol": 1e-2, "atol": 1e-3}  # generous: half-precision models are rounded coarsely
_ALONE = 8  # rows tried alone against the same rows in company
_TRIED = 512  # rows tried at each size
_LEAST_TRIED = 64  # the same where a pass is slow

Arrays = tuple[np.ndarray, ...]
Forward = Callable[[Arrays], np.ndarray]
"""One pass of the graph: the inputs ``[rows, ...]`` in graph order -> float32 ``[rows, columns]``.

The inputs are lent for the pass, and are not changed: a graph that writes into its inputs is given copies."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Tile:
    """``multiples``: every multiple of ``rows`` up to ``most`` gives the same bits; else only exactly ``rows`` do."""

    rows: Annotated[int, Field(ge=1, le=FORWARD_ROWS)]
    multiples: bool
    most: Annotated[int, Field(ge=1, le=FORWARD_ROWS)]

    @cached_property
    def largest(self) -> int:
        """The most rows of one pass, always a multiple of ``rows``."""
        return max(self.most - self.most % self.rows, self.rows) if self.multiples else self.rows

    def only_size(self, rows: int) -> int | None:
        """Up to what size so many rows are filled up, where one pass takes them all."""
        size = -(-rows // self.rows) * self.rows
        return size if 0 < size <= self.largest else None

    def plan(self, rows: int) -> Iterator[tuple[int, int, int]]:
        """How ``rows`` rows are run: (start, stop, size); start:stop is padded up to size."""
        for start in range(0, rows, self.largest):
            stop = min(start + self.largest, rows)
            yield start, stop, -(-(stop - start) // self.rows) * self.rows


def run(forward: Forward, tile: Tile, inputs: Arrays, columns: int) -> np.ndarray:
    """Scores all rows, tile by tile: float32 ``[rows, columns]``. WrongShape when the graph returns anything else."""
    rows = len(inputs[0])
    if (size := tile.only_size(rows)) is not None:  # its scores are handed on as they are
        return once(forward, _padded(inputs, size), columns)[:rows]
    scores = np.empty((rows, columns), np.float32)
    for start, stop, padded in _passes(tile, inputs):
        scores[start:stop] = once(forward, padded, columns)[: stop - start]
    return scores


def once(forward: Forward, inputs: Arrays, columns: int) -> np.ndarray:
    """One pass, with the shape of what comes back proved."""
    return proved(forward(inputs), len(inputs[0]), columns)


def proved(scores: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The scores of a pass. WrongShape if they are no float32 ``[rows, columns]``."""
    expected = (rows, columns)
    if scores.shape != expected or scores.dtype != np.float32:
        raise WrongShape(
            f"the model returned {scores.dtype} {list(scores.shape)} where the schema asks for float32 {list(expected)}"
            " ([rows, score columns]); its forward must give one line for each row"
        )
    return scores


def find_tile(forward: Forward, rows: Arrays, columns: int, *, timer: Callable[[], float] = time.perf_counter) -> Tile:
    """The smallest tile that holds on this host, tried with ``rows`` (see ``shared.golden.company``).

    NotCertified when a row's score depends on its neighbours by more than rounding, or changes from call to call.
    """
    most = _affordable(forward, rows, columns, timer)
    _refuse_neighbours(forward, rows, columns, most)
    for size in CANDIDATES:
        tile = Tile(rows=size, multiples=True, most=most)
        if size <= most and _agrees(forward, tile, rows, columns, _multiples(tile)):
            return tile
    for size in FIXED:
        if size <= most and holds(forward, tile := Tile(rows=size, multiples=False, most=size), rows, columns):
            return tile
    raise NotCertified("the model gives the same row another score from call to call; remove what is random in it")


def holds(forward: Forward, tile: Tile, rows: Arrays, columns: int) -> bool:
    """Whether a tile holds on this host: several sizes, each with other rows in another order."""
    if not tile.multiples:
        return _agrees(forward, tile, rows, columns, (tile.rows,) * 2)
    steps = tile.largest // tile.rows
    counts = {1, 2, 3, 4, 5, 7, 8, 16, steps // 3, steps // 2, steps - 1, steps}
    return _agrees(forward, tile, rows, columns, [tile.rows * count for count in sorted(counts) if 1 <= count <= steps])


def _multiples(tile: Tile) -> list[int]:
    """All multiples of a tile of 8 rows and more; of a smaller one the first 64, and 64 spread over the rest."""
    steps = tile.largest // tile.rows
    near = range(1, min(steps, 64) + 1)
    far = np.linspace(len(near), steps, min(steps - len(near), 64) + 1).round().astype(int)[1:].tolist()
    return [tile.rows * count for count in (*near, *far)]


def _agrees(forward: Forward, tile: Tile, rows: Arrays, columns: int, sizes: Iterable[int]) -> bool:
    """Whether passes of these sizes, over rows in another order each time, repeat the bits of one long run.

    Each size is tried with many rows, in as many passes as that takes: with some models only one row in a hundred
    is rounded otherwise.
    """
    total = min(len(rows[0]), max(tile.largest, _LEAST_TRIED))
    reference = run(forward, tile, _take(rows, np.arange(total)), columns)
    random = np.random.default_rng(1)
    for size in sizes:
        order = random.permutation(total)
        tried = _TRIED if size == tile.rows else _TRIED // 2
        for start in range(0, max(min(total, tried), size), size):
            picks = np.resize(np.roll(order, -start), size)
            if once(forward, _take(rows, picks), columns).tobytes() != reference[picks].tobytes():
                return False
    return True


def _affordable(forward: Forward, rows: Arrays, columns: int, timer: Callable[[], float]) -> int:
    """The most rows of one pass: as many as ``rows`` has, or as fit into the time of a slow pass; a power of two."""
    most = 1
    once(forward, _take(rows, np.arange(1)), columns)  # the first pass warms up
    while most * 2 <= min(len(rows[0]), FORWARD_ROWS):
        part = _take(rows, np.arange(most))
        if not any(_is_quick(forward, part, columns, timer) for _ in range(_TIMINGS)):
            break
        most *= 2
    return most


def _is_quick(forward: Forward, rows: Arrays, columns: int, timer: Callable[[], float]) -> bool:
    start = timer()
    once(forward, rows, columns)
    return (timer() - start) * 2 <= _SLOW_SECONDS


def _refuse_neighbours(forward: Forward, rows: Arrays, columns: int, most: int) -> None:
    together = once(forward, _take(rows, np.arange(most)), columns)
    for row in range(min(_ALONE, most)):
        alone = once(forward, _take(rows, np.array([row])), columns)
        if not np.allclose(alone[0], together[row], **_ROUNDING, equal_nan=True):
            raise NotCertified(
                "the score of a row depends on the rows beside it in the batch; call eval() before building,"
                " and take nothing across the batch dimension"
            )


def _take(rows: Arrays, picks: np.ndarray) -> Arrays:
    return tuple(part[picks] for part in rows)


def _passes(tile: Tile, inputs: Arrays) -> Iterator[tuple[int, int, Arrays]]:
    """The rows of each pass, start:stop, and its inputs."""
    for start, stop, size in tile.plan(len(inputs[0])):
        parts = tuple([part[start:stop] for part in inputs])
        yield start, stop, parts if stop - start == size else _padded(parts, size)


def _padded(inputs: Arrays, size: int) -> Arrays:
    """``size`` rows. Copies of the last row fill them up: they are in the graph's domain."""
    return tuple([part[np.minimum(np.arange(size), len(part) - 1)] for part in inputs])
