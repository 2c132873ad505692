"""What one value means, feature kind by feature kind."""

import datetime as dt
import math
from decimal import Decimal
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.codes import Code
from shared.rules import (
    FLOAT32_LIMIT,
    IntegerRule,
    NumericRule,
    TextRule,
    boolean_rule,
    cardinality,
    categorical_rule,
    numeric_rule,
)
from shared.schema import Boolean, Categorical, Numeric

FLOAT32_MAX = float(np.finfo(np.float32).max)
OPTIONAL = numeric_rule(Numeric("a", missing="mean"))
REQUIRED = numeric_rule(Numeric("a"))
NOT_SCALARS = [
    b"1",
    [1],
    (1,),
    {"a": 1},
    {1},
    ...,
    1j,
    dt.date(2026, 1, 1),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
]
NOT_SCALARS += [dt.time(1), dt.timedelta(1), np.datetime64("2026-01-01"), np.timedelta64(1, "D"), np.array([1.0])]
MISSING = [None, math.nan, np.float32("nan"), np.float16("nan"), Decimal("NaN"), Decimal("sNaN")]


class Word(StrEnum):
    """Text of a subclass."""

    MONTH = "month"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0.0),
        (-3, -3.0),
        (1.5, 1.5),
        (2**53, 2.0**53),
        (-(2**53), -(2.0**53)),
        (1e300 / 1e290, 1e10),
        (FLOAT32_MAX, FLOAT32_MAX),
        (math.nextafter(FLOAT32_LIMIT, 0), math.nextafter(FLOAT32_LIMIT, 0)),
        (Decimal("0.1"), 0.1),
        (Decimal(2**53), 2.0**53),
        (Decimal("9007199254740993.5"), 9007199254740994.0),
        (np.float32(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.int64(7), 7.0),
        (np.uint8(7), 7.0),
        ("12", 12.0),
        ("+12", 12.0),
        ("-1.5e-3", -0.0015),
        (".5", 0.5),
        ("5.", 5.0),
        (" \t\r\n\f\v7 ", 7.0),
        ("007", 7.0),
        ("9007199254740992", 2.0**53),
        ("0" * 5000 + "7", 7.0),
        ("1e30", 1e30),
        ("12345678901234567890.5", 12345678901234567890.5),
        (np.str_("7"), 7.0),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_a_number_is_taken(value: object, number: float) -> None:
    """A value that stands for a number is that number in float64, correctly rounded."""
    assert OPTIONAL.decode(value) == number
    assert REQUIRED.decode(value) == number


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("NaN", Code.NOT_A_NUMBER),  # C5
        ("nan", Code.NOT_A_NUMBER),
        ("inf", Code.NOT_A_NUMBER),
        ("-Infinity", Code.NOT_A_NUMBER),
        ("null", Code.NOT_A_NUMBER),
        ("1_000", Code.NOT_A_NUMBER),
        ("1,000", Code.NOT_A_NUMBER),
        ("1 000", Code.NOT_A_NUMBER),
        ("0x10", Code.NOT_A_NUMBER),
        ("true", Code.NOT_A_NUMBER),
        ("--1", Code.NOT_A_NUMBER),
        (".", Code.NOT_A_NUMBER),
        ("1e", Code.NOT_A_NUMBER),
        ("1\x00", Code.NOT_A_NUMBER),
        ("\u0663", Code.NOT_A_NUMBER),  # an Arabic digit, which Python's float() would take
        ("\uff11", Code.NOT_A_NUMBER),
        ("\u00a01", Code.NOT_A_NUMBER),  # a no-break space, which Python's strip() would remove
        ("\u2212" + "1", Code.NOT_A_NUMBER),
        ("\ud800", Code.NOT_A_NUMBER),
        (True, Code.WRONG_TYPE),
        (False, Code.WRONG_TYPE),
        (np.True_, Code.WRONG_TYPE),
        (2**53 + 1, Code.NOT_EXACT),
        (-(2**53) - 1, Code.NOT_EXACT),
        (10**400, Code.NOT_EXACT),
        (np.uint64(2**64 - 1), Code.NOT_EXACT),
        ("9007199254740993", Code.NOT_EXACT),
        ("-0009007199254740993", Code.NOT_EXACT),
        ("9" * 5000, Code.NOT_EXACT),
        (Decimal(2**53 + 1), Code.NOT_EXACT),
        (Decimal("9007199254740993.00"), Code.NOT_EXACT),
        (Decimal("1e999999"), Code.NOT_EXACT),
        (math.inf, Code.NOT_FINITE),
        (-math.inf, Code.NOT_FINITE),
        (FLOAT32_LIMIT, Code.NOT_FINITE),
        (-FLOAT32_LIMIT, Code.NOT_FINITE),
        (1e39, Code.NOT_FINITE),
        ("1e39", Code.NOT_FINITE),
        ("1e999999", Code.NOT_FINITE),
        (Decimal("Infinity"), Code.NOT_FINITE),
        *((value, Code.WRONG_TYPE) for value in NOT_SCALARS),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_what_is_no_number_has_a_reason(value: object, code: Code) -> None:
    """Nothing is guessed: a value that stands for no number that the model can take is rejected, with the reason."""
    assert OPTIONAL.decode(value) is code


@pytest.mark.parametrize("value", [*MISSING, "", " ", "\t\n"], ids=ascii)
def test_a_missing_number_follows_the_rule(value: object) -> None:
    """Null, NaN and empty text are the same missing value: NaN in the graph, or a rejected row."""
    decoded = OPTIONAL.decode(value)
    assert isinstance(decoded, float)
    assert math.isnan(decoded)
    assert REQUIRED.decode(value) is Code.MISSING


@pytest.mark.parametrize("value", [-1, -1.0, "-1", -2, -0.99999999999, Decimal(-1)])
def test_log1p_has_a_domain(value: object) -> None:
    """A value that float32 puts at or below -1 has no logarithm, unless clip lifts it."""
    assert numeric_rule(Numeric("a", log1p=True)).decode(value) is Code.OUT_OF_DOMAIN
    assert numeric_rule(Numeric("a", log1p=True, clip=(-0.5, 9))).decode(value) == pytest.approx(float(str(value)))
    assert numeric_rule(Numeric("a", log1p=True, clip=(-0.99999999999, 9))).decode(value) is Code.OUT_OF_DOMAIN


def test_just_above_minus_1_has_a_logarithm() -> None:
    """The domain begins with the first float32 above -1."""
    assert numeric_rule(Numeric("a", log1p=True)).decode(-1 + 2**-24) == -1 + 2**-24


@given(st.floats(allow_nan=False, width=64))
def test_finite_means_finite_in_float32(value: float) -> None:
    """A float is taken exactly when float32 can hold it, and then without a warning."""
    decoded = REQUIRED.decode(value)
    with np.errstate(over="ignore"):
        finite = bool(np.isfinite(np.float32(value)))
    assert (decoded == value) if finite else (decoded is Code.NOT_FINITE)
    assert not finite or np.isfinite(np.float32(value))


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_number_and_its_text_are_one(value: float) -> None:
    """C8: the same number as JSON and as CSV is the same value."""
    assert REQUIRED.decode(repr(value)) == REQUIRED.decode(value)


@given(st.integers())
def test_an_integer_and_its_texts_are_one(value: int) -> None:
    """An integer, its text and its decimal give the same number or the same reason."""
    assert REQUIRED.decode(value) == REQUIRED.decode(str(value)) == REQUIRED.decode(Decimal(value))


@given(st.text(max_size=12))
def test_text_is_a_number_missing_or_a_reason(text: str) -> None:
    """No text raises, and only ASCII spells a number."""
    decoded = OPTIONAL.decode(text)
    assert isinstance(decoded, Code) or math.isnan(decoded) or text.isascii()


@pytest.mark.parametrize("rule", [boolean_rule(Boolean("a")), boolean_rule(Boolean("a", missing="indicator"))])
@pytest.mark.parametrize(
    ("value", "truth"),
    [
        *((value, 1.0) for value in (True, np.True_, 1, 1.0, np.int8(1), Decimal(1), "true", "TRUE", " True ", "1")),
        *(
            (value, 0.0)
            for value in (False, np.False_, 0, -0.0, np.float32(0), Decimal("0.0"), "false", "fALSE", "0\n")
        ),
    ],
    ids=ascii,
)
def test_a_boolean_is_taken(rule: NumericRule, value: object, truth: float) -> None:
    """True and false are taken in each of their spellings."""
    assert rule.decode(value) == truth


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *((value, Code.NOT_BOOLEAN) for value in (2, -1, 0.5, math.inf, Decimal("0.1"), 10**400)),
        *((value, Code.NOT_BOOLEAN) for value in ("yes", "no", "t", "1.0", "2", "null", "\u0661", "\u212a")),
        *((value, Code.WRONG_TYPE) for value in NOT_SCALARS),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_what_is_neither_true_nor_false_has_a_reason(value: object, code: Code) -> None:
    """No other number or text counts as true or false."""
    assert boolean_rule(Boolean("a", missing="true")).decode(value) is code


@pytest.mark.parametrize("value", [*MISSING, "", "  "], ids=ascii)
def test_a_missing_boolean_follows_the_rule(value: object) -> None:
    """A missing boolean is NaN for the graph to fill, or a rejected row."""
    decoded = boolean_rule(Boolean("a", missing="false")).decode(value)
    assert isinstance(decoded, float)
    assert math.isnan(decoded)
    assert boolean_rule(Boolean("a")).decode(value) is Code.MISSING


@pytest.mark.parametrize("unseen", ["own", "reject"])
@pytest.mark.parametrize("missing", ["own", "reject"])
def test_codes_are_vocabulary_then_unseen_then_missing(unseen: str, missing: str) -> None:
    """C10: the buckets that a feature has lie behind its vocabulary, in this order; without one the row is rejected."""
    feature = Categorical("a", vocabulary=("x", "y"), unseen=unseen, missing=missing)  # type: ignore[arg-type]
    rule = categorical_rule(feature, ("x", "y"))
    assert [rule.decode("x"), rule.decode("y")] == [0, 1]
    assert rule.decode("z") == (2 if unseen == "own" else Code.UNSEEN)
    assert rule.decode(None) == ((3 if unseen == "own" else 2) if missing == "own" else Code.MISSING)
    assert cardinality(feature, ("x", "y")) == 2 + (unseen == "own") + (missing == "own")


TEXT = categorical_rule(Categorical("a", unseen="reject", missing="reject"), ("month", "7", " "))
INTEGERS = categorical_rule(Categorical("a", unseen="reject", missing="reject"), (7, 0, -1, 2**63 - 1))


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        ("month", 0),
        (Word.MONTH, 0),
        (np.str_("month"), 0),
        ("7", 1),
        (" ", 2),
        ("", Code.MISSING),
        (" month", Code.UNSEEN),
        ("Month", Code.UNSEEN),
        ("07", Code.UNSEEN),
        ("\ud800", Code.UNSEEN),
        *((value, Code.MISSING) for value in MISSING),
        *((value, Code.WRONG_TYPE) for value in (7, 7.0, True, Decimal(7), *NOT_SCALARS)),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_a_text_category_is_exact(value: object, decoded: int) -> None:
    """Only the very text is the category: nothing is stripped, folded or converted, and 7 is not "7"."""
    assert isinstance(TEXT, TextRule)
    found = TEXT.decode(value)
    assert (type(found), found) == (type(decoded), decoded)


def test_the_empty_text_can_be_a_category() -> None:
    """Where the vocabulary has the empty text, it is no missing value."""
    assert categorical_rule(Categorical("a"), ("x", "")).decode("") == 1


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (7, 0),
        (np.int8(7), 0),
        (7.0, 0),
        (np.float32(7), 0),
        (Decimal("7.00"), 0),
        ("7", 0),
        (" +07 ", 0),
        ("0" * 5000 + "7", 0),
        (-0.0, 1),
        ("-0", 1),
        ("-1", 2),
        (2**63 - 1, 3),
        (str(2**63 - 1), 3),
        ("", Code.MISSING),
        (" ", Code.MISSING),
        (8, Code.UNSEEN),
        (7.5, Code.UNSEEN),
        ("7.0", Code.UNSEEN),
        ("seven", Code.UNSEEN),
        ("\u0667", Code.UNSEEN),
        ("9" * 5000, Code.UNSEEN),
        (10**400, Code.UNSEEN),
        (1e300, Code.UNSEEN),
        (math.inf, Code.UNSEEN),
        (Decimal("7.5"), Code.UNSEEN),
        (Decimal("1e999999"), Code.UNSEEN),
        (Decimal("-Infinity"), Code.UNSEEN),
        *((value, Code.MISSING) for value in MISSING),
        *((value, Code.WRONG_TYPE) for value in (True, np.False_, *NOT_SCALARS)),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_an_integer_category_is_the_integer(value: object, decoded: int) -> None:
    """An integer is the category in whatever form it comes; true is not 1."""
    assert isinstance(INTEGERS, IntegerRule)
    found = INTEGERS.decode(value)
    assert (type(found), found) == (type(decoded), decoded)
