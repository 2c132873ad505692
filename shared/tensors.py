"""What a tensor's value means: nested or flat sequences of exactly the schema's elements.

A row breaks the first of these that applies to any of its elements: wrong_shape, wrong_type, missing, not_finite or
not_boolean, out_of_range. Many rows at once go through the same checks as one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import orjson

from shared.codes import Code
from shared.rules import BLANKS, FLOAT32_LIMIT, MAX_EXACT, is_missing, nearest_float32, plain
from shared.schema import Tensor

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "int64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
}
_SEQUENCES = (list, tuple, np.ndarray)


@dataclass(frozen=True, slots=True)
class TensorRule:
    """Decodes a ``Tensor``: an array of its shape and dtype, zeros where missing if the schema says so."""

    shape: tuple[int, ...]
    size: int
    dtype: np.dtype[Any]
    minimum: float | None
    maximum: float | None
    missing: Array | Code = field(repr=False)

    @classmethod
    def of(cls, feature: Tensor) -> Self:
        dtype = DTYPES[feature.dtype]
        minimum = None if feature.minimum is None else _bound(feature.minimum, dtype, math.ceil)
        maximum = None if feature.maximum is None else _bound(feature.maximum, dtype, math.floor)
        missing = Code.MISSING if feature.missing == "reject" else np.zeros(feature.shape, dtype)
        return cls(feature.shape, feature.size, dtype, minimum, maximum, missing)

    def decode(self, value: object) -> Array | Code:
        if isinstance(value, str):
            value = _parsed(value.strip(BLANKS))
        if not isinstance(value, _SEQUENCES):
            return self.missing if is_missing(value) else Code.WRONG_TYPE
        elements = _elements(value, self.shape, self.size)
        if not isinstance(elements, Code) and not _is_numbers(elements):
            elements = self._numbers(list(elements))
        if isinstance(elements, Code):
            return elements
        values, codes = self.check(np.asarray(elements).reshape(1, self.size))
        return Code(int(codes[0])) if codes[0] else values[0].reshape(self.shape)

    def check(self, numbers: Array) -> tuple[Array, Array]:
        """Booleans, integers or floats [rows, size] -> values of the dtype [rows, size], codes uint8 [rows].

        Code 0 is well; the values of a row with another code have no meaning.
        """
        codes = np.zeros(len(numbers), np.uint8)
        if numbers.dtype.kind == "b" and self.dtype.kind != "b":
            codes[:] = Code.WRONG_TYPE
            return np.zeros(numbers.shape, self.dtype), codes
        if numbers.dtype.kind == "f":
            _mark(codes, np.isnan(numbers), Code.MISSING)
        values = _CASTS[self.dtype.kind](numbers, codes)
        if self.minimum is not None:
            _mark(codes, values < self.minimum, Code.OUT_OF_RANGE)
        if self.maximum is not None:
            _mark(codes, values > self.maximum, Code.OUT_OF_RANGE)
        return values, codes

    def _numbers(self, elements: list[Any]) -> Array | Code:
        """Python elements as one array of the kind that they have in common."""
        kinds = set(map(type, elements))
        if not kinds <= {bool, int, float}:
            elements = [plain(element) for element in elements]
            kinds = set(map(type, elements))
        if not kinds <= {bool, int, float, type(None)} or (bool in kinds and self.dtype.kind != "b"):
            return Code.WRONG_TYPE
        if type(None) in kinds:
            return Code.MISSING
        if kinds == {bool}:
            return np.array(elements, np.bool_)
        return self._floats(elements) if float in kinds else self._integers(elements)

    def _integers(self, elements: list[Any]) -> Array | Code:
        try:
            return np.array(elements, np.int64)
        except OverflowError:
            return Code.OUT_OF_RANGE if self.dtype.kind == "i" else self._floats(elements)

    def _floats(self, elements: list[Any]) -> Array | Code:
        if self.dtype.kind == "i" and any(isinstance(e, int) and abs(e) > MAX_EXACT for e in elements):
            return Code.NOT_EXACT
        try:
            return np.array(elements, np.float64)
        except OverflowError:
            return Code.NOT_FINITE if self.dtype.kind == "f" else Code.NOT_BOOLEAN


def _bound(bound: float, dtype: np.dtype[Any], whole: Callable[[float], int]) -> float:
    """An inclusive bound as elements are compared with it: 0.1 holds for the float32 that 0.1 becomes."""
    return whole(bound) if dtype.kind == "i" else np.float64(nearest_float32(bound))


def _parsed(text: str) -> object:
    """The value that a JSON text spells, None where it is empty, and the text itself where it spells no list."""
    if not text:
        return None
    try:
        return orjson.loads(text) if text.startswith("[") else text
    except orjson.JSONDecodeError:
        return text


def _is_numbers(elements: object) -> bool:
    return isinstance(elements, np.ndarray) and elements.dtype.kind in "biuf"


def _elements(value: Any, shape: tuple[int, ...], size: int) -> Sequence[object] | Array | Code:
    """The elements in order, out of a value that is flat or nested exactly as the shape says."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf":
            return value.reshape(-1) if value.shape in {shape, (size,)} else Code.WRONG_SHAPE
        value = value.tolist()  # objects, texts; an array of no dimension gives its element
        if not isinstance(value, list):
            return Code.WRONG_SHAPE
    if len(value) == size and not any(isinstance(element, _SEQUENCES) for element in value):
        return value  # type: ignore[no-any-return]
    return _flattened(value, shape)


def _flattened(value: Sequence[Any], shape: tuple[int, ...]) -> list[object] | Code:
    if len(value) != shape[0]:
        return Code.WRONG_SHAPE
    if len(shape) == 1:
        return Code.WRONG_SHAPE if any(isinstance(element, _SEQUENCES) for element in value) else list(value)
    flat: list[object] = []
    for child in value:
        if not isinstance(child, _SEQUENCES):
            return Code.MISSING if is_missing(child) else Code.WRONG_SHAPE
        elements = _flattened(child, shape[1:])  # type: ignore[arg-type]
        if isinstance(elements, Code):
            return elements
        flat.extend(elements)
    return flat


def _mark(codes: Array, broken: Array, code: Code) -> None:
    """Gives the code to the rows with a broken element, unless they have one already."""
    rows = broken.any(axis=1)
    if rows.any():
        codes[rows & (codes == 0)] = code


def _to_float32(numbers: Array, codes: Array) -> Array:
    if numbers.dtype == np.float32:
        _mark(codes, np.isinf(numbers), Code.NOT_FINITE)
        return numbers
    wide = numbers.astype(np.float64)
    _mark(codes, np.abs(wide) >= FLOAT32_LIMIT, Code.NOT_FINITE)
    with np.errstate(over="ignore"):  # of rows that were marked
        return wide.astype(np.float32)


def _to_int64(numbers: Array, codes: Array) -> Array:
    if numbers.dtype.kind == "f":
        numbers = numbers.astype(np.float64)
        _mark(codes, np.isinf(numbers), Code.NOT_FINITE)
        _mark(codes, np.trunc(numbers) != numbers, Code.WRONG_TYPE)
        _mark(codes, (numbers < -(2.0**63)) | (numbers >= 2.0**63), Code.OUT_OF_RANGE)
    elif numbers.dtype == np.uint64:
        _mark(codes, numbers >= np.uint64(2**63), Code.OUT_OF_RANGE)
    with np.errstate(invalid="ignore"):  # of rows that were marked
        return numbers.astype(np.int64)


def _to_bool(numbers: Array, codes: Array) -> Array:
    if numbers.dtype.kind == "b":
        return numbers
    _mark(codes, (numbers != 0) & (numbers != 1), Code.NOT_BOOLEAN)
    return np.asarray(numbers != 0)


_CASTS = {"f": _to_float32, "i": _to_int64, "b": _to_bool}
