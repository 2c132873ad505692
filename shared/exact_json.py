"""JSON that keeps every integer: what is sent is what is read, whatever its length."""

import json
from typing import Any, NoReturn

import orjson

_PLAIN = bytes.maketrans(b"123456789E", b"000000000e")
"""All digits are one, so that what a number looks like is found by its bytes: far cheaper than by a pattern."""
_MARKS = (b"0" * 19, b"e000", b"e+000")
"""Marks of a number that orjson would round to a float or refuse: the standard library's parser keeps it exact."""


def loads(text: bytes) -> Any:
    """The value of JSON as RFC 8259 has it: NaN and Infinity are not JSON. ValueError or RecursionError if it is none,
    ``orjson.JSONDecodeError`` where the place is known."""
    return _parse_exactly(text) if _is_marked(text) else orjson.loads(text)


def loads_unique(text: bytes) -> Any:
    """The same, for a file from elsewhere: ValueError also where an object has a key twice, since two readers could
    each take another one."""
    return json.loads(text.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique)


def dumps(value: object) -> bytes:
    """JSON that ``loads`` reads back equal, integers beyond 64 bits included; ValueError or TypeError if there is none.

    NaN and infinite numbers have no JSON: they become null.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, allow_nan=False).encode()


def _is_marked(text: bytes) -> bool:
    plain = text.translate(_PLAIN)
    return any(mark in plain for mark in _MARKS)


def _parse_exactly(text: bytes) -> Any:
    return json.loads(text.decode(), parse_constant=_refuse_constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError
