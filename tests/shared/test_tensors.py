"""What a tensor's value means."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.codes import Code
from shared.schema import Tensor
from shared.tensors import TensorRule


def rule(dtype: str = "float32", shape: tuple[int, ...] = (2,), **rules: Any) -> TensorRule:
    return TensorRule.of(Tensor("a", shape=shape, dtype=dtype, **rules))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2, 3], [4, 5, 6]],
        ((1, 2, 3), (4, 5, 6)),
        [1, 2, 3, 4, 5, 6],
        (1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        np.arange(1, 7).reshape(2, 3),
        np.arange(1, 7, dtype=np.float16),
        np.array([[1, 2, 3], [4, 5, 6]], dtype=object),
        [np.arange(1, 4), np.arange(4, 7)],
        [np.int8(1), np.float32(2), 3, 4.0, 5, 6],
        "[[1, 2, 3], [4, 5, 6]]",
        " [1,2,3,4,5,6]\n",
    ],
    ids=ascii,
)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_nested_and_flat_are_the_same_tensor(value: object, dtype: str) -> None:
    """A tensor is taken nested, flat, as an array, or as JSON text, and comes out in its shape and dtype."""
    decoded = rule(dtype, (2, 3)).decode(value)
    assert isinstance(decoded, np.ndarray)
    assert decoded.dtype == dtype
    assert decoded.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "value",
    [
        [],
        [1],
        [1, 2, 3, 4, 5],
        [[1, 2, 3]],
        [[1, 2], [3, 4], [5, 6]],
        [[1, 2, 3], [4, 5]],
        [[1, 2, 3], 4],
        [[[1], [2], [3]], [[4], [5], [6]]],
        [[1, 2, 3, 4, 5, 6]],
        np.zeros((3, 2)),
        np.zeros((1, 6)),
        np.array(1.0),
        np.array("x"),
        "[1, 2]",
    ],
    ids=ascii,
)
def test_another_shape_is_refused(value: object) -> None:
    """There is no reshaping, padding or cutting."""
    assert rule(shape=(2, 3)).decode(value) is Code.WRONG_SHAPE


@pytest.mark.parametrize("value", [None, math.nan, np.float32("nan"), "", "  "], ids=ascii)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_a_missing_tensor_follows_the_rule(value: object, dtype: str) -> None:
    """A missing tensor is zeros, or a rejected row."""
    assert rule(dtype).decode(value) is Code.MISSING
    zeros = rule(dtype, missing="zeros").decode(value)
    assert isinstance(zeros, np.ndarray)
    assert zeros.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("dtype", "value", "code"),
    [
        ("float32", [1, None], Code.MISSING),
        ("float32", [1, math.nan], Code.MISSING),
        ("float32", "[1, null]", Code.MISSING),
        ("float32", [1, math.inf], Code.NOT_FINITE),
        ("float32", [1, 1e39], Code.NOT_FINITE),
        ("float32", [1, 10**400], Code.NOT_FINITE),
        ("float32", np.array([1, np.inf], np.float32), Code.NOT_FINITE),
        ("float32", [1, "2"], Code.WRONG_TYPE),
        ("float32", [1, True], Code.WRONG_TYPE),
        ("float32", np.array([True, False]), Code.WRONG_TYPE),
        ("float32", [1, Decimal(2)], Code.WRONG_TYPE),
        ("float32", [1, dt.date(2026, 1, 1)], Code.WRONG_TYPE),
        ("float32", [1, {}], Code.WRONG_TYPE),
        ("float32", ["x", None], Code.WRONG_TYPE),
        ("int64", [1, None], Code.MISSING),
        ("int64", [1, math.nan], Code.MISSING),
        ("int64", [1, 1.5], Code.WRONG_TYPE),
        ("int64", [1, False], Code.WRONG_TYPE),
        ("int64", [1, math.inf], Code.NOT_FINITE),
        ("int64", [1, 2**63], Code.OUT_OF_RANGE),
        ("int64", [1, -(2**63) - 1], Code.OUT_OF_RANGE),
        ("int64", [1.0, 1e19], Code.OUT_OF_RANGE),
        ("int64", [1.0, 2**53 + 1], Code.NOT_EXACT),
        ("int64", np.array([1, 2**63], np.uint64), Code.OUT_OF_RANGE),
        ("bool", [True, 2], Code.NOT_BOOLEAN),
        ("bool", [True, 0.5], Code.NOT_BOOLEAN),
        ("bool", [True, math.inf], Code.NOT_BOOLEAN),
        ("bool", [True, 10**400], Code.NOT_BOOLEAN),
        ("bool", [0.0, 10**400], Code.NOT_BOOLEAN),
        ("bool", [True, None], Code.MISSING),
        ("bool", [True, math.nan], Code.MISSING),
        ("bool", [True, "true"], Code.WRONG_TYPE),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_a_bad_element_has_a_reason(dtype: str, value: object, code: Code) -> None:
    """One element that the dtype cannot hold exactly rejects the row."""
    assert rule(dtype).decode(value) is code


@pytest.mark.parametrize(
    "value", [[1, 0], [True, False], [1.0, -0.0], [True, 0], np.array([1, 0]), "[true, 0]"], ids=ascii
)
def test_0_and_1_are_booleans(value: object) -> None:
    """A mask may be written in numbers."""
    decoded = rule("bool").decode(value)
    assert isinstance(decoded, np.ndarray)
    assert decoded.dtype == np.bool_
    assert decoded.tolist() == [True, False]


@pytest.mark.parametrize("value", [1, 1.5, True, b"[1,2]", {"a": 1}, {1, 2}, dt.date(2026, 1, 1), ...], ids=ascii)
def test_what_is_no_sequence_is_refused(value: object) -> None:
    """A scalar never becomes a tensor."""
    assert rule().decode(value) is Code.WRONG_TYPE


@pytest.mark.parametrize("text", ["1, 2", "[1, 2", "[1, NaN]", "[" * 100_000, '{"a": 1}', "[1,2]]", "[\ud800]", "null"])
def test_text_that_is_no_json_list_is_refused(text: str) -> None:
    """Broken, deep and foreign text ends as a reason and never as an exception."""
    assert rule().decode(text) is Code.WRONG_TYPE


def test_bounds_are_inclusive() -> None:
    """Token ids outside of the table are rejected here; its first and last are taken."""
    tokens = rule("int64", minimum=0, maximum=99)
    assert tokens.decode([-1, 0]) is Code.OUT_OF_RANGE
    assert tokens.decode([0, 100]) is Code.OUT_OF_RANGE
    assert not isinstance(tokens.decode([0, 99]), Code)


def test_a_bound_is_met_by_the_float32_that_it_becomes() -> None:
    """0.1 lies within a maximum of 0.1, though float32 rounds it up."""
    assert not isinstance(rule(maximum=0.1, minimum=-0.1).decode([0.1, -0.1]), Code)
    assert rule(maximum=0.1).decode([0.1, 0.1000001]) is Code.OUT_OF_RANGE


def test_a_bound_that_float32_cannot_hold_bounds_nothing() -> None:
    """Such a bound is no error and raises no warning."""
    assert not isinstance(rule(minimum=-1e300, maximum=1e300).decode([3e38, -3e38]), Code)


def test_big_integers_are_compared_exactly() -> None:
    """A bound on integers is no float comparison."""
    assert rule("int64", maximum=2.0**53).decode([2**53, 2**53 + 1]) is Code.OUT_OF_RANGE
    assert not isinstance(rule("int64", minimum=-1e30, maximum=1e30).decode([2**63 - 1, -(2**63)]), Code)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4))
def test_float32_elements_keep_their_bits(elements: list[float]) -> None:
    """An embedding reaches the model as it is."""
    decoded = rule(shape=(4,)).decode(elements)
    assert isinstance(decoded, np.ndarray)
    assert decoded.tobytes() == np.array(elements, np.float32).tobytes()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4))
def test_int64_elements_are_exact(elements: list[int]) -> None:
    """Every int64 is taken as it is, above 2**53 too."""
    decoded = rule("int64", (2, 2)).decode(elements)
    assert isinstance(decoded, np.ndarray)
    assert decoded.reshape(-1).tolist() == elements


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=2),
    lambda children: st.lists(children, max_size=3) | st.tuples(children, children),
    max_leaves=8,
)


@given(ANYTHING, st.sampled_from(["float32", "int64", "bool"]), st.sampled_from([(2,), (2, 2), (1, 1), (1,)]))
def test_anything_is_a_tensor_or_a_reason(value: object, dtype: str, shape: tuple[int, ...]) -> None:
    """No value raises, and what is taken has the shape and the dtype."""
    decoded = rule(dtype, shape, minimum=-5, maximum=5).decode(value)
    assert isinstance(decoded, Code) or (decoded.shape == shape and decoded.dtype == dtype)
