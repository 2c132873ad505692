import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.answer import named_scores, predictions, shortest
from shared.schema import Binary, MultiClass, MultiLabel, Regression

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOAT32)
def test_shortest_keeps_the_bits(value: float) -> None:
    """The printed decimal reads back as the same float32, bit for bit."""
    assert np.float32(shortest(value)).tobytes() == np.float32(value).tobytes()


@given(FLOAT32)
def test_shortest_has_no_digit_too_many(value: float) -> None:
    """No decimal with one significant digit less is the same float32."""
    digits = re.sub(r"e.*|[-.]", "", repr(shortest(value))).strip("0")
    if len(digits) > 1:
        shorter = float(f"{value:.{len(digits) - 2}e}")
        assert np.float32(shorter) != np.float32(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.8581489), "0.8581489"),
        (0.10000000149011612, "0.1"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1e-45, "1e-45"),
        (3.4028234663852886e38, "3.4028235e+38"),
        (16777216.0, "16777216.0"),
    ],
)
def test_shortest_reads_as_a_person_would_write_it(value: float, text: str) -> None:
    """A float32 prints without the digits that only its float64 form has."""
    assert repr(shortest(value)) == text


def test_scores_carry_names() -> None:
    """Each score has its column's name, in the order of the outputs."""
    outputs = (MultiClass("plan", classes=("a", "b")), Regression("spend"))
    assert named_scores(outputs, [0.25, 0.75, -3.0]) == {"plan.a": 0.25, "plan.b": 0.75, "spend": -3.0}


def test_scores_of_another_number_are_refused() -> None:
    """Scores that do not fit the outputs are never given names."""
    with pytest.raises(ValueError, match="zip"):
        named_scores((Regression("spend"),), [1.0, 2.0])


@pytest.mark.parametrize(
    ("output", "scores", "expected"),
    [
        (Binary("b", threshold=0.5), [0.5], {"b": True}),
        (Binary("b", threshold=0.5), [0.49999997], {"b": False}),
        (Binary("b", threshold=0.7), [float(np.float32(0.7))], {"b": True}),
        (Binary("b", threshold=0.5, classes=("stays", "leaves")), [0.9], {"b": "leaves"}),
        (Binary("b"), [0.9], {}),
        (MultiClass("m", classes=("x", "y", "z")), [0.2, 0.4, 0.4], {"m": "y"}),
        (MultiLabel("l", classes=("x", "y"), threshold=0.5), [0.6, 0.5], {"l": ["x", "y"]}),
        (MultiLabel("l", classes=("x", "y"), threshold=0.5), [0.1, 0.2], {"l": []}),
        (MultiLabel("l", classes=("x", "y")), [0.6, 0.5], {}),
        (Regression("r"), [math.pi], {}),
    ],
)
def test_predictions_follow_from_the_printed_scores(output: Binary, scores: list[float], expected: object) -> None:
    """A threshold counts from its own value up, as printed; the first of equal classes is the prediction."""
    assert predictions((output,), scores) == expected


def test_predictions_look_at_their_own_columns() -> None:
    """Each output is predicted from its own scores."""
    outputs = (MultiClass("plan", classes=("a", "b")), Regression("spend"), Binary("buys", threshold=0.5))
    assert predictions(outputs, [0.9, 0.1, 7.0, 0.2]) == {"plan": "a", "buys": False}
