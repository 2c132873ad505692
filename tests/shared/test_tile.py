from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.errors import NotCertified, WrongShape
from shared.tile import FORWARD_ROWS, Arrays, Tile, find_tile, holds, once, run

ROWS = (np.random.default_rng(0).normal(size=(FORWARD_ROWS, 3)).astype(np.float32),)


def exact(inputs: Arrays) -> np.ndarray:
    """A model whose rows never depend on their company."""
    return inputs[0][:, :1] * np.float32(2)


def rounding_unless(multiple: int) -> object:
    """A model whose last bit depends on the batch, unless the batch is a multiple of so many rows."""

    def forward(inputs: Arrays) -> np.ndarray:
        scores = exact(inputs)
        return scores if len(scores) % multiple == 0 else np.nextafter(scores, np.float32(np.inf))

    return forward


def rounding_by_size(inputs: Arrays) -> np.ndarray:
    """A model whose last bits are others at each batch size."""
    return exact(inputs) * np.float32(1 + len(inputs[0]) * 2e-7)


def rounding_by_place(inputs: Arrays) -> np.ndarray:
    """A model whose last bit depends on the row's place in the batch."""
    scores = exact(inputs)
    scores[1::2] = np.nextafter(scores[1::2], np.float32(np.inf))
    return scores


@given(st.integers(1, 5000), st.integers(1, 300), st.booleans(), st.integers(1, FORWARD_ROWS))
def test_a_plan_covers_each_row_once(rows: int, tile: int, multiples: bool, most: int) -> None:  # noqa: FBT001
    """The passes follow one another without gap, each padded to a multiple of the tile, or to exactly the tile."""
    plan = list(Tile(rows=tile, multiples=multiples, most=most).plan(rows))
    assert [row for start, stop, _ in plan for row in range(start, stop)] == list(range(rows))
    for start, stop, size in plan:
        assert stop - start <= size
        assert size % tile == 0 if multiples else size == tile
        assert size <= max(most, tile)


@given(st.integers(1, 5000), st.integers(1, 300), st.booleans(), st.integers(1, 40))
def test_each_pass_finds_its_own_rows(rows: int, tile: int, multiples: bool, width: int) -> None:  # noqa: FBT001
    """Wherever in the batch a pass begins, each row gets its own score."""
    inputs = (np.arange(rows * width, dtype=np.float32).reshape(rows, width), np.arange(rows).reshape(rows, 1))

    def forward(parts: Arrays) -> np.ndarray:
        assert (parts[0][:, 0] == parts[1][:, 0] * width).all()
        return parts[0][:, :1]

    scores = run(forward, Tile(rows=tile, multiples=multiples, most=FORWARD_ROWS), inputs, 1)

    assert scores.tobytes() == inputs[0][:, :1].tobytes()


@pytest.mark.parametrize("multiple", [1, 2, 16, 64])
def test_the_smallest_tile_is_found(multiple: int) -> None:
    """The tile is the smallest number of rows all of whose multiples agree."""
    tile = find_tile(rounding_unless(multiple), ROWS, 1)
    assert (tile.rows, tile.multiples) == (multiple, True)


def test_without_multiples_one_size_is_always_run() -> None:
    """Where sizes round differently, every pass has exactly one size."""
    tile = find_tile(rounding_by_size, ROWS, 1)
    assert (tile.rows, tile.multiples) == (256, False)
    assert {size for _, _, size in tile.plan(1000)} == {256}


def test_where_places_matter_rows_run_alone() -> None:
    """Where a row's place changes its bits, each row is run alone."""
    assert find_tile(rounding_by_place, ROWS, 1) == Tile(rows=1, multiples=False, most=1)


def test_neighbours_that_change_the_answer_are_refused() -> None:
    """M2: a model that takes the batch's mean gives no score for a row, whatever the tile."""
    with pytest.raises(NotCertified, match="depends on the rows beside it"):
        find_tile(lambda inputs: inputs[0][:, :1] - inputs[0][:, :1].mean(), ROWS, 1)


def test_a_random_model_is_refused() -> None:
    """A model that gives a row another score at each call is never certified."""
    random = np.random.default_rng(0)
    noisy = 1 + 1e-6 * random.normal(size=(10_000, 1))

    def forward(inputs: Arrays) -> np.ndarray:
        start = int(random.integers(0, 5000))
        return (exact(inputs) * noisy[start : start + len(inputs[0])]).astype(np.float32)

    with pytest.raises(NotCertified, match="from call to call"):
        find_tile(forward, ROWS, 1)


def test_a_tile_that_does_not_hold_is_noticed() -> None:
    """A tile recorded elsewhere is tried at several sizes before it is trusted."""
    forward = rounding_unless(16)
    assert holds(forward, Tile(rows=16, multiples=True, most=1024), ROWS, 1)
    assert not holds(forward, Tile(rows=8, multiples=True, most=1024), ROWS, 1)


def test_a_slow_model_takes_fewer_rows_at_a_time() -> None:
    """A pass is kept short: the most rows of one pass follow from the time that it takes."""
    ticks: Iterator[float] = (pass_number * 0.1 for pass_number in range(100))
    sizes: list[int] = []

    def timer() -> float:
        return next(ticks) * sizes[-1]

    def forward(inputs: Arrays) -> np.ndarray:
        sizes.append(len(inputs[0]))
        return exact(inputs)

    assert find_tile(forward, ROWS, 1, timer=timer).most < FORWARD_ROWS


def test_padding_does_not_reach_the_scores() -> None:
    """Rows that fill up a tile are cut off again, and are copies of a real row."""
    seen: list[np.ndarray] = []

    def forward(inputs: Arrays) -> np.ndarray:
        seen.append(inputs[0])
        return exact(inputs)

    part = (ROWS[0][:5],)
    scores = run(forward, Tile(rows=4, multiples=True, most=8), part, 1)
    assert scores.tobytes() == exact(part).tobytes()
    assert [len(each) for each in seen] == [8]
    assert (seen[0][5:] == part[0][-1]).all()


@pytest.mark.parametrize(
    "returned",
    [
        np.zeros((3, 1), np.float32),
        np.zeros((4, 2), np.float32),
        np.zeros(4, np.float32),
        np.zeros((4, 1), np.float64),
    ],
)
def test_what_comes_back_is_proved(returned: np.ndarray) -> None:
    """I4: another number of rows, of columns, another dtype: a typed error, and no score."""
    with pytest.raises(WrongShape, match="one line for each row"):
        once(lambda _: returned, (ROWS[0][:4],), 1)


@pytest.mark.parametrize("rows", [0, -1, FORWARD_ROWS + 1])
def test_an_impossible_tile_is_refused(rows: int) -> None:
    """A tile has 1 to 1024 rows."""
    with pytest.raises(ValidationError):
        Tile(rows=rows, multiples=True, most=1024)
