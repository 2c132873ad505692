"""The features of one entity as the store keeps them: one JSON object, read by the rules of the schema when it is used.

``PUT /features`` and ``forescore features load`` write the same. What a table holds and JSON does not (decimals, NaN)
is written as a value that every rule reads the same.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

import numpy as np

from shared.exact_json import dumps, loads

Row = Mapping[str, object]

INT64_DIGITS = 19


def payload_of(row: Row) -> bytes:
    """The payload, which reads back equal; ValueError where a value has no JSON, as an infinite number."""
    payload = dumps(row)
    if loads(payload) != row:
        raise ValueError("a value has no JSON of its own")
    return payload


def row_of(payload: bytes) -> Row | None:
    """The features of a payload; None if it is not one."""
    try:
        row = loads(payload)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def table_payloads(columns: Mapping[str, Iterable[object]]) -> Iterator[bytes]:
    """The payloads of a table's rows, given as Python values by column. Every row must fit the schema."""
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        told = ((name, plain_value(value)) for name, value in zip(names, values, strict=True))
        yield payload_of({name: value for name, value in told if value is not None})


def plain_value(value: object) -> object:
    """A value as JSON can hold it, that means the same to every rule; None where it is missing."""
    match value:
        case float() if not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        case Decimal():
            return _of_decimal(value)
        case np.ndarray() | np.generic():
            return plain_value(value.tolist())
    return value


def _of_decimal(value: Decimal) -> object:
    """As an integer or as text: a float may round it to an integer that it is not."""
    if value.is_nan():
        return None
    whole = value.is_finite() and value.adjusted() < INT64_DIGITS and value == value.to_integral_value()
    return int(value) if whole else str(value)
