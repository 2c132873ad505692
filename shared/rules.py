"""What a value means: one rule for each kind of feature, and no other place that decides it.

A rule turns one Python value into what the graph takes, or into the ``Code`` of the rule that it breaks. Both front
doors of ``shared.encode`` end here: requests value by value, Arrow columns by their distinct values.

============  ===================  ===================  ==========================  ==========================
a value       Numeric              Boolean              Categorical, text           Categorical, integers
============  ===================  ===================  ==========================  ==========================
null, NaN     missing              missing              missing                     missing
``""``        missing              missing              missing, unless a category  missing
text          if it spells one     true false 1 0       exact                       if it spells an integer
integer       up to 2**53          0 or 1               wrong_type                  exact
float         if finite            0 or 1               wrong_type                  if integral, else unseen
decimal       by its text          0 or 1               wrong_type                  if integral, else unseen
boolean       wrong_type           yes                  wrong_type                  wrong_type
else          wrong_type           wrong_type           wrong_type                  wrong_type
============  ===================  ===================  ==========================  ==========================

NumPy scalars count as their Python kin. Tensors have their rule in ``shared.tensors``.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from shared.codes import Code
from shared.schema import Boolean, Categorical, Numeric

BLANKS = " \t\r\n\f\v"
MAX_EXACT = 2**53
FLOAT32_LIMIT = 2.0**128 - 2.0**103
"""The least float64 that float32 rounds to infinity: half a step above the greatest float32."""

USUALLY_ABOVE = -0.5
"""A float above it, and below FLOAT32_LIMIT, breaks no numeric rule."""

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_INT64_DIGITS = 19
_BOOLEANS = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}


@dataclass(frozen=True, slots=True)
class NumericRule:
    """Decodes a ``Numeric``: a float that float32 can hold, NaN where missing."""

    required: bool
    log1p: bool
    lifted: bool
    """Whether clip's lower bound lifts every value above -1."""

    def decode(self, value: object) -> float | Code:
        if type(value) is float and USUALLY_ABOVE < value < FLOAT32_LIMIT:  # what nearly all are
            return value
        number = float(value) if type(value) is int and 0 <= value <= MAX_EXACT else number_of(value)
        if isinstance(number, Code):
            return number
        if math.isnan(number):
            return Code.MISSING if self.required else math.nan
        if not -FLOAT32_LIMIT < number < FLOAT32_LIMIT:
            return Code.NOT_FINITE
        if self.log1p and not self.lifted and np.float32(number) <= -1:
            return Code.OUT_OF_DOMAIN
        return number


@dataclass(frozen=True, slots=True)
class BooleanRule:
    """Decodes a ``Boolean``: 1.0, 0.0, NaN where missing."""

    required: bool

    def decode(self, value: object) -> float | Code:
        if value is True:
            return 1.0
        if value is False:
            return 0.0
        if type(value) is int and 0 <= value <= 1:
            return float(value)
        truth = _truth(plain(value))
        if not isinstance(truth, Code) and math.isnan(truth) and self.required:
            return Code.MISSING
        return truth


@dataclass(frozen=True, slots=True)
class TextRule:
    """Decodes a ``Categorical`` of texts: a code of the vocabulary or of a bucket behind it."""

    codes: dict[str, int]
    unseen: int | Code
    missing: int | Code

    @property
    def kind(self) -> type:
        """Of such a value, one of ``codes`` is its code; of all others ``decode`` must say what they mean."""
        return str

    def decode(self, value: object) -> int | Code:
        if isinstance(value, str):
            code = self.codes.get(value)
            if code is not None:
                return code
            return self.unseen if value else self.missing
        return self.missing if is_missing(value) else Code.WRONG_TYPE


@dataclass(frozen=True, slots=True)
class IntegerRule:
    """Decodes a ``Categorical`` of integers: a code of the vocabulary or of a bucket behind it."""

    codes: dict[int, int]
    unseen: int | Code
    missing: int | Code

    @property
    def kind(self) -> type:
        """The same: other values may equal an integer and mean another thing."""
        return int

    def decode(self, value: object) -> int | Code:
        whole = _whole(value if type(value) is int else plain(value))
        if whole is Code.MISSING:
            return self.missing
        if whole is Code.UNSEEN:
            return self.unseen
        return whole if isinstance(whole, Code) else self.codes.get(whole, self.unseen)


CodeRule = TextRule | IntegerRule
ScalarRule = NumericRule | BooleanRule | CodeRule


def numeric_rule(feature: Numeric) -> NumericRule:
    lifted = feature.clip is not None and nearest_float32(feature.clip[0]) > -1
    return NumericRule(required=feature.missing == "reject", log1p=feature.log1p, lifted=lifted)


def boolean_rule(feature: Boolean) -> BooleanRule:
    return BooleanRule(required=feature.missing == "reject")


def categorical_rule(feature: Categorical, vocabulary: tuple[str, ...] | tuple[int, ...]) -> TextRule | IntegerRule:
    """The codes are 0..K-1 in the vocabulary's order, then the bucket of the unseen, then that of the missing."""
    size = len(vocabulary)
    unseen = size if feature.unseen == "own" else Code.UNSEEN
    missing = cardinality(feature, vocabulary) - 1 if feature.missing == "own" else Code.MISSING
    texts = {word: code for code, word in enumerate(vocabulary) if isinstance(word, str)}
    if texts:
        return TextRule(texts, unseen, missing)
    return IntegerRule({word: code for code, word in enumerate(vocabulary) if isinstance(word, int)}, unseen, missing)


def cardinality(feature: Categorical, vocabulary: tuple[str, ...] | tuple[int, ...]) -> int:
    """How many codes a categorical has, its buckets included."""
    return len(vocabulary) + (feature.unseen == "own") + (feature.missing == "own")


def nearest_float32(value: float) -> float:
    """The finite float32 that is nearest to a finite number."""
    return float(np.float32(min(max(value, -_FLOAT32_MAX), _FLOAT32_MAX)))


def is_missing(value: object) -> bool:
    """Whether the value is null or NaN."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or (isinstance(value, Decimal) and value.is_nan())


def plain(value: object) -> object:
    """A NumPy scalar, or an instance of a subclass, as its Python kin; anything else as it is."""
    if value is None or isinstance(value, np.timedelta64):  # which NumPy derives from its integers
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    return str.__str__(value) if isinstance(value, str) else value


def number_of(value: object) -> float | Code:
    """The float64 that a value stands for, NaN where it is missing, or why it stands for none."""
    if type(value) is float:
        return value
    if type(value) is int:
        return _number_of_int(value)
    value = plain(value)
    convert = _NUMBERS.get(type(value))
    return Code.WRONG_TYPE if convert is None else convert(value)


def _number_of_int(value: int) -> float | Code:
    return float(value) if -MAX_EXACT <= value <= MAX_EXACT else Code.NOT_EXACT


def _number_of_text(text: str) -> float | Code:
    text = text.strip(BLANKS)
    if not text:
        return math.nan
    if not _NUMBER.fullmatch(text):
        return Code.NOT_A_NUMBER
    number = float(text)
    if abs(number) >= MAX_EXACT and _WHOLE.fullmatch(text) and not _is_exact(text):
        return Code.NOT_EXACT
    return number


def _is_exact(text: str) -> bool:
    digits = text.lstrip("+-0")
    return len(digits) <= _INT64_DIGITS and int(digits) <= MAX_EXACT


def _number_of_decimal(value: Decimal) -> float | Code:
    if value.is_nan():
        return math.nan
    if value.is_infinite():
        return Code.NOT_FINITE
    if value.copy_abs() > MAX_EXACT and _is_integral(value):
        return Code.NOT_EXACT
    return float(str(value))


def _is_integral(value: Decimal) -> bool:
    return value.is_finite() and value == value.to_integral_value()


def _truth(value: object) -> float | Code:
    if is_missing(value):
        return math.nan
    if isinstance(value, str):
        text = value.strip(BLANKS)
        return _BOOLEANS.get(text.lower(), Code.NOT_BOOLEAN) if text else math.nan
    if isinstance(value, int | float | Decimal):
        return float(value) if value in {0, 1} else Code.NOT_BOOLEAN
    return Code.WRONG_TYPE


def _whole(value: object) -> int | Code:
    """The integer that a value stands for; UNSEEN where it is a number or a text that no integer equals."""
    if is_missing(value):
        return Code.MISSING
    convert = _WHOLES.get(type(value))
    return Code.WRONG_TYPE if convert is None else convert(value)


def _whole_of_float(value: float) -> int | Code:
    return int(value) if value.is_integer() else Code.UNSEEN


def _whole_of_decimal(value: Decimal) -> int | Code:
    return int(value) if value.adjusted() < _INT64_DIGITS and _is_integral(value) else Code.UNSEEN


def _whole_of_text(text: str) -> int | Code:
    text = text.strip(BLANKS)
    if not text:
        return Code.MISSING
    digits = text.lstrip("+-0") or "0"  # Python limits the digits of an int, leading zeros included
    if not _WHOLE.fullmatch(text) or len(digits) > _INT64_DIGITS:
        return Code.UNSEEN
    return -int(digits) if text[0] == "-" else int(digits)


_NUMBERS: dict[type, Callable[[Any], float | Code]] = {
    type(None): lambda _: math.nan,
    int: _number_of_int,
    float: float,
    str: _number_of_text,
    Decimal: _number_of_decimal,
}
_WHOLES: dict[type, Callable[[Any], int | Code]] = {
    int: int,
    float: _whole_of_float,
    str: _whole_of_text,
    Decimal: _whole_of_decimal,
}
