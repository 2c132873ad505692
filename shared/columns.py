"""The Arrow door: a whole column through the rule of its feature.

Numbers and tensors of numbers are decoded by NumPy within the rules' own limits. Everything else is decoded by its
distinct values, each of which goes through the rule as a Python value, so that the two doors cannot differ.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shared.codes import Code
from shared.rules import FLOAT32_LIMIT, MAX_EXACT, BooleanRule, NumericRule, ScalarRule
from shared.tensors import Array, TensorRule

Decoded = tuple[Array, Array]
"""Values [rows] or [rows, *shape], and codes uint8 [rows]. Code 0 is well; the value beside another has no meaning."""

_USUAL = r"^-?[0-9]{1,15}(\.[0-9]{1,17})?$"
"""No text of this form breaks the numeric rule: none is empty, and none is an integer beyond 2**53."""

_OPAQUE = object()
"""Stands for what Arrow cannot turn into a Python value: text that is not UTF-8, a date of the year 20,000."""


def decode_column(rule: ScalarRule | TensorRule, column: pa.ChunkedArray | pa.Array) -> Decoded:
    """Decodes a column in the table's order, chunk by chunk."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_decode(rule, chunk) for chunk in chunks if len(chunk)] or [_decode(rule, pa.nulls(0))]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([values for values, _ in parts]), np.concatenate([codes for _, codes in parts])


def python_values(array: pa.Array) -> list[object]:
    """The array as Python values, an opaque object for each that Arrow cannot convert."""
    try:
        return array.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, ArithmeticError, LookupError):
        return [python_value(scalar) for scalar in array]


def python_value(scalar: pa.Scalar) -> object:
    """The value as Python has it, an opaque object where Arrow cannot convert it."""
    try:
        return scalar.as_py()
    except (ValueError, ArithmeticError, LookupError):
        return _OPAQUE


def _decode(rule: ScalarRule | TensorRule, array: pa.Array) -> Decoded:
    if isinstance(rule, TensorRule):
        return _tensors(rule, array)
    if isinstance(rule, NumericRule) and pa.types.is_integer(array.type):
        return _integers(rule, array)
    if isinstance(rule, NumericRule) and pa.types.is_floating(array.type):
        return _numbers(rule, array.to_numpy(zero_copy_only=False).astype(np.float64))
    if isinstance(rule, BooleanRule) and (pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)):
        return _truths(rule, array)
    if isinstance(rule, NumericRule) and array.type in {pa.string(), pa.large_string()}:
        return _texts(rule, array)
    return _distinct(rule, array)


def _integers(rule: NumericRule, array: pa.Array) -> Decoded:
    whole, missing = _filled(array)
    numbers = whole.astype(np.float64)
    if missing is not None:
        numbers[missing] = np.nan
    values, codes = _numbers(rule, numbers)
    if whole.dtype.itemsize == np.dtype(np.int64).itemsize:
        _mark(codes, whole > MAX_EXACT, Code.NOT_EXACT)
        if whole.dtype.kind == "i":
            _mark(codes, whole < -MAX_EXACT, Code.NOT_EXACT)
    return values, codes


def _truths(rule: BooleanRule, array: pa.Array) -> Decoded:
    """What ``BooleanRule.decode`` does, for integers and booleans."""
    whole, missing = _filled(array.cast(pa.uint8()) if pa.types.is_boolean(array.type) else array)
    values, codes = whole.astype(np.float32), np.zeros(len(whole), np.uint8)
    _mark(codes, (whole < 0) | (whole > 1), Code.NOT_BOOLEAN)
    if missing is not None:
        values[missing] = np.nan
        codes[missing] = Code.MISSING if rule.required else 0
    return values, codes


def _numbers(rule: NumericRule, numbers: Array) -> Decoded:
    """What ``NumericRule.decode`` does, for float64 numbers with NaN where missing."""
    codes = np.zeros(len(numbers), np.uint8)
    missing = np.isnan(numbers)
    with np.errstate(over="ignore"):  # of rows that are marked
        values = numbers.astype(np.float32)
    if missing.any():
        values[missing] = np.nan  # one NaN, whatever bits the column had
        codes[missing] = Code.MISSING if rule.required else 0
    if rule.log1p and not rule.lifted:
        _mark(codes, values <= -1, Code.OUT_OF_DOMAIN)
    _mark(codes, np.abs(numbers) >= FLOAT32_LIMIT, Code.NOT_FINITE)
    return values, codes


def _mark(codes: Array, rows: Array, code: Code) -> None:
    if rows.any():  # rare, and to look is cheaper than to assign
        codes[rows] = code


def _filled(array: pa.Array) -> tuple[Array, Array | None]:
    """Integers with 0 in place of nulls, and where those are; None if there are none."""
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False), None
    return array.fill_null(0).to_numpy(zero_copy_only=False), ~_valid(array)


def _texts(rule: NumericRule, array: pa.Array) -> Decoded:
    """Numbers in their usual spelling are parsed by Arrow, correctly rounded; all others are left to the rule."""
    usual = pc.match_substring_regex(array, _USUAL).fill_null(False).to_numpy(zero_copy_only=False)
    values, codes = np.zeros(len(array), np.float32), np.zeros(len(array), np.uint8)
    numbers = _kept(array, usual).cast(pa.float64()).to_numpy()
    values[usual], codes[usual] = _numbers(rule, numbers)
    values[~usual], codes[~usual] = _distinct(rule, _kept(array, ~usual))
    return values, codes


def _distinct(rule: ScalarRule, array: pa.Array) -> Decoded:
    """Decodes each distinct value once."""
    if not isinstance(array, pa.DictionaryArray):
        try:
            array = array.dictionary_encode()
        except pa.ArrowNotImplementedError:
            return _table(rule, python_values(array))
    indices, words = array.indices, python_values(array.dictionary)
    if indices.null_count:
        indices, words = indices.cast(pa.int64()).fill_null(len(words)), [*words, None]
    values, codes = _table(rule, words)
    places = indices.to_numpy(zero_copy_only=False)
    return values.take(places), codes.take(places) if codes.any() else np.zeros(len(places), np.uint8)


def _table(rule: ScalarRule, words: Iterable[object]) -> Decoded:
    decoded = [rule.decode(word) for word in words]
    codes = np.array([value if isinstance(value, Code) else 0 for value in decoded], np.uint8)
    dtype = np.float32 if isinstance(rule, NumericRule | BooleanRule) else np.int64
    return np.array([0 if isinstance(value, Code) else value for value in decoded], dtype), codes


def _tensors(rule: TensorRule, array: pa.Array) -> Decoded:
    """Decodes the rows that are whole at once, and all others one by one."""
    extents = _extents(array.type, rule)
    whole, leaves = _whole(array, extents) if extents else (np.zeros(len(array), np.bool_), pa.array([], pa.int8()))
    checked, broken = rule.check(leaves.to_numpy(zero_copy_only=False).reshape(-1, rule.size))
    if whole.all():
        return checked.reshape(-1, *rule.shape), broken
    values = np.zeros((len(array), rule.size), rule.dtype)
    codes = np.zeros(len(array), np.uint8)
    values[whole], codes[whole] = checked, broken
    for row in np.flatnonzero(~whole):
        decoded = rule.decode(python_value(array[row]))
        if isinstance(decoded, Code):
            codes[row] = decoded
        else:
            values[row] = decoded.reshape(-1)
    return values.reshape(-1, *rule.shape), codes


def _extents(kind: pa.DataType, rule: TensorRule) -> tuple[int, ...]:
    """The list lengths, level by level, of a column that is flat or nested as the rule says; () for any other."""
    depth = 0
    while _is_list(kind):
        kind, depth = kind.value_type, depth + 1
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return ()
    if depth == len(rule.shape):
        return rule.shape
    return (rule.size,) if depth == 1 else ()


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _whole(lists: pa.Array, extents: Sequence[int]) -> tuple[Array, pa.Array]:
    """Which lists hold exactly the extents' elements, none of them null; and the elements of those, in order."""
    extent, *deeper = extents
    whole = pc.equal(pc.list_value_length(lists), extent).fill_null(False).to_numpy(zero_copy_only=False)
    inner = _kept(lists, whole).flatten()
    inner_whole, leaves = _whole(inner, deeper) if deeper else (_valid(inner), _kept(inner, _valid(inner)))
    rows = inner_whole.reshape(-1, extent).all(axis=1)
    leaves_each = int(np.prod(deeper, dtype=np.int64))
    leaves = _kept(leaves, np.repeat(np.repeat(rows, extent)[inner_whole], leaves_each))
    whole = whole.copy()
    whole[whole] = rows
    return whole, leaves


def _kept(array: pa.Array, mask: Array) -> pa.Array:
    return array if mask.all() else array.filter(pa.array(mask))


def _valid(array: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), np.bool_)
