"""JSON that keeps every integer: what is sent is what is read, whatever its length."""

import json
import re
from typing import Any, NoReturn

import orjson

_BEYOND_64_BITS = re.compile(rb"[0-9]{19}|[eE]\+?[0-9]{3}")
"""Marks of a number that orjson would round to a float or refuse: the standard library's parser keeps it exact."""


def loads(text: bytes) -> Any:
    """The value of JSON as RFC 8259 has it: NaN and Infinity are not JSON. ValueError or RecursionError if it is none,
    ``orjson.JSONDecodeError`` where the place is known."""
    return _parse_exactly(text) if _BEYOND_64_BITS.search(text) else orjson.loads(text)


def dumps(value: object) -> bytes:
    """JSON that ``loads`` reads back equal, integers beyond 64 bits included; ValueError or TypeError if there is none.

    NaN and infinite numbers have no JSON: they become null.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, allow_nan=False).encode()


def _parse_exactly(text: bytes) -> Any:
    return json.loads(text.decode(), parse_constant=_refuse_constant)


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError
