from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shared.bundle import Bundle
from shared.codes import Code, Rejection
from shared.encode import Encoded
from shared.errors import DeviceUnavailable, ScoringError, WrongShape
from shared.scorer import Scorer, open_scorer, score_each
from shared.testing.bundles import PURCHASE_FEATURES, every_feature_table
from shared.tile import Arrays

FOUR = ([1, 0, 2], [0, 3, 1], [2, 1, 0], [1, 1, 1])


def purchases(scorer: Scorer, rows: object = FOUR) -> Encoded:
    return scorer.encoder.rows([dict(zip(PURCHASE_FEATURES, row, strict=True)) for row in rows])  # type: ignore[call-overload]


def encoded(count: int) -> Encoded:
    """Rows whose one number is their position."""
    return Encoded(
        numeric=np.arange(count, dtype=np.float32).reshape(-1, 1),
        codes=np.empty((count, 0), np.int64),
        rows=np.arange(count, dtype=np.int64) * 2 + 1,
        rejections=tuple(Rejection(row=row * 2, code=Code.MISSING, field="x") for row in range(count)),
    )


class Double:
    """Scores a row by its number; ``broken`` rows make the whole pass raise what ``error`` makes."""

    def __init__(self, broken: set[int], error: Callable[[], Exception] = lambda: ScoringError("broken")) -> None:
        self.broken, self.error = broken, error
        self.passes = 0

    def score(self, encoded: Encoded) -> np.ndarray:
        self.passes += 1
        numbers = encoded.numeric[:, 0]
        if self.broken & set(numbers.astype(int).tolist()):
            raise self.error()
        return numbers.reshape(-1, 1) * np.float32(2)


def test_the_purchase_model_scores_as_by_hand(purchase_scorer: Scorer) -> None:
    """sigmoid(0.8 a - 0.4 b + 0.6 c - 0.2) for four rows, to four digits, in order."""
    scores = purchase_scorer.score(purchases(purchase_scorer))
    assert scores.dtype == np.float32
    assert scores.round(4).ravel().tolist() == pytest.approx([0.8581, 0.31, 0.7311, 0.69])


def test_a_row_scores_the_same_bits_in_any_company(everything_scorer: Scorer) -> None:
    """M1: alone, in a tile, in a chunk, shuffled: the same 32 bits."""
    scorer = everything_scorer
    rows = scorer.encoder.columns(every_feature_table(2500, seed=9))
    together = scorer.score(rows)
    random = np.random.default_rng(0)
    for size in (1, 2, 3, 15, 16, 17, 255, 1024, 1025, 2500):
        picks = random.permutation(len(rows))[:size]
        assert scorer.score(rows.take(picks)).tobytes() == together[picks].tobytes()


def test_both_doors_score_the_same_bits(everything_scorer: Scorer) -> None:
    """M3: a table's rows and the same rows as mappings, scored one by one."""
    table = every_feature_table(40, seed=2)
    by_column = everything_scorer.score(everything_scorer.encoder.columns(table))
    by_row = [everything_scorer.score(everything_scorer.encoder.rows([row])) for row in table.to_pylist()]
    assert np.concatenate(by_row).tobytes() == by_column.tobytes()


def test_no_rows_score_to_no_rows(everything_scorer: Scorer) -> None:
    """Nothing in, nothing out, with the columns that there would be."""
    assert everything_scorer.score(everything_scorer.encoder.rows([])).shape == (0, len(everything_scorer.columns))


def test_threads_share_a_scorer(everything_scorer: Scorer) -> None:
    """I5: calls in parallel each get their own rows' scores."""
    rows = everything_scorer.encoder.columns(every_feature_table(200, seed=4))
    expected = everything_scorer.score(rows)
    picks = [np.random.default_rng(seed).permutation(200)[:50] for seed in range(32)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pick: everything_scorer.score(rows.take(pick)), picks))
    assert all(scores.tobytes() == expected[pick].tobytes() for scores, pick in zip(found, picks, strict=True))


def test_scoring_leaves_its_input_as_it_was(everything_scorer: Scorer) -> None:
    """Encoded rows may be scored again: nothing writes into them."""
    rows = everything_scorer.encoder.columns(every_feature_table(30))
    for part in rows.inputs():
        part.flags.writeable = False
    everything_scorer.score(rows)


def test_encoded_rows_are_given_to_the_graph_as_they_are(purchase_scorer: Scorer) -> None:
    """What the encoder filled up for the tile reaches the graph without a copy, and gives the bits of a padded copy."""
    seen: list[int] = []

    def forward(inputs: Arrays) -> np.ndarray:
        seen.append(id(inputs[0]))
        return purchase_scorer.forward(inputs)

    rows = purchases(purchase_scorer)
    scores = replace(purchase_scorer, forward=forward).score(rows)
    assert seen == [id(rows.whole[0])]
    assert scores.tobytes() == purchase_scorer.score(replace(rows, whole=())).tobytes()


def test_rows_encoded_for_another_tile_are_padded_for_this_one(purchase_scorer: Scorer) -> None:
    """Rows that another encoder filled up for passes of another size are never run at that size."""
    encoder = purchase_scorer.encoder.for_tiles(purchase_scorer.tile.rows + 1)
    rows = encoder.rows([dict(zip(PURCHASE_FEATURES, row, strict=True)) for row in FOUR])
    assert purchase_scorer.score(rows).tobytes() == purchase_scorer.score(purchases(purchase_scorer)).tobytes()


def test_an_error_of_the_graph_tells_no_value(purchase_scorer: Scorer) -> None:
    """L3: torch's own texts quote values, so only the kind of error is told."""
    rows = replace(purchases(purchase_scorer), numeric=np.zeros((4, 2), np.float32), whole=())
    with pytest.raises(ScoringError, match=r"forward pass of 16 rows failed \(IndexError\)") as caught:
        purchase_scorer.score(rows)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("device", ["cuda:99", "cpu:1", "tpu", "cuda:x", ""])
def test_a_device_that_is_not_there_is_named(purchase: Bundle, device: str) -> None:
    """The device is chosen in one place, which names those that are there."""
    with pytest.raises(DeviceUnavailable, match="this machine has: cpu"):
        open_scorer(purchase, device=device)


def test_threads_are_set(purchase: Bundle) -> None:
    """K10: the threads of a pass come from the settings, and 0 leaves torch's own number."""
    before = torch.get_num_threads()
    try:
        open_scorer(purchase, device="cpu", threads=1)
        assert torch.get_num_threads() == 1
        open_scorer(purchase, device="cpu", threads=0)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_good_rows_are_scored_in_one_pass() -> None:
    """Where nothing fails, nothing is tried twice: one pass."""
    double = Double(set())
    scored = score_each(double, encoded(100))
    assert double.passes == 1
    assert scored.rows.tolist() == list(range(1, 201, 2))
    assert scored.scores.ravel().tolist() == list(range(0, 200, 2))
    assert [rejection.code for rejection in scored.rejections] == [Code.MISSING] * 100


@given(st.integers(1, 60).flatmap(lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1)))))
def test_a_failing_row_costs_itself(case: tuple[int, set[int]]) -> None:
    """D10: whichever rows fail, exactly they are rejected, and every other row has its own score, in order."""
    count, broken = case
    scored = score_each(Double(broken, lambda: RuntimeError("secret 42")), encoded(count))
    assert scored.rows.tolist() == [row * 2 + 1 for row in range(count) if row not in broken]
    assert scored.scores.ravel().tolist() == [row * 2 for row in range(count) if row not in broken]
    failed = [rejection for rejection in scored.rejections if rejection.code is Code.FORWARD_FAILED]
    assert failed == [Rejection(row=row * 2 + 1, code=Code.FORWARD_FAILED) for row in sorted(broken)]
    assert [each.row for each in scored.rejections] == sorted(each.row for each in scored.rejections)


def test_one_bad_row_among_many_is_found_quickly() -> None:
    """Bisection takes a number of passes that grows with the logarithm of the rows."""
    double = Double({33_333})
    scored = score_each(double, encoded(50_000))
    assert len(scored.rows) == 49_999
    assert double.passes < 40


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_rejects_its_row(value: float) -> None:
    """C4: NaN and infinity are never scores."""

    class Lost(Double):
        def score(self, encoded: Encoded) -> np.ndarray:
            scores = super().score(encoded)
            scores[encoded.numeric[:, 0] == 3] = value
            return scores

    scored = score_each(Lost(set()), encoded(6))
    assert scored.rows.tolist() == [1, 3, 5, 9, 11]
    assert Rejection(row=7, code=Code.NON_FINITE_SCORE) in scored.rejections
    assert np.isfinite(scored.scores).all()


class WrongRows(Double):
    """Returns a row too few for passes with a broken row."""

    def score(self, encoded: Encoded) -> np.ndarray:
        self.passes += 1
        scores = encoded.numeric[:, :1]
        return scores[1:] if self.broken & set(scores[:, 0].astype(int).tolist()) else scores


def test_a_row_that_changes_the_shape_costs_itself() -> None:
    """I4: where most rows come back right, the row that does not is rejected alone."""
    scored = score_each(WrongRows({5}), encoded(20))
    assert len(scored.rows) == 19
    assert Rejection(row=11, code=Code.FORWARD_FAILED) in scored.rejections


@pytest.mark.parametrize("count", [1, 2, 50_000])
def test_a_model_of_the_wrong_shape_is_an_error(count: int) -> None:
    """I4: where every row that is tried comes back wrong, it is the model: a typed error, and soon."""
    double = WrongRows(set(range(count)))
    with pytest.raises(WrongShape, match="returned"):
        score_each(double, encoded(count))
    assert double.passes < 12


def test_no_rows_at_all_keep_their_rejections() -> None:
    """Where the encoder took no row, the rejections are all there is."""
    nothing = replace(encoded(3).take(np.empty(0, np.int64)), rejections=encoded(3).rejections)
    scored = score_each(Double(set()), nothing)
    assert (len(scored.rows), scored.scores.shape, len(scored.rejections)) == (0, (0, 1), 3)


def test_the_real_scorer_goes_through_score_each(purchase_scorer: Scorer) -> None:
    """A bad row is rejected before scoring, with its field, and its neighbours are scored."""
    rows = purchase_scorer.encoder.rows(
        [
            dict(zip(PURCHASE_FEATURES, FOUR[0], strict=True)),
            {"visits": 1, "returns": 1},
            dict.fromkeys(PURCHASE_FEATURES, 1),
        ]
    )
    scored = score_each(purchase_scorer, rows)
    assert scored.rows.tolist() == [0, 2]
    assert scored.rejections == (Rejection(row=1, code=Code.MISSING, field="basket"),)
