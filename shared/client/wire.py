"""Ids and features as they are sent."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any
from urllib.parse import quote

from shared.client.problems import Problem, invalid_id, rejected

MAX_ID_BYTES = 256
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
"""The service's rules, so far as an id that breaks them may not reach it: servers and proxies have a word in it too."""

_EATEN = frozenset({".", ".."})
"""Ids that clients and proxies take out of a path (RFC 3986, section 5.2.4), escaped or not."""

Features = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """What to score in bulk: an entity as the service knows it, features as given here, or these under that id."""

    entity_id: str | int | None = None
    features: Features | None = None

    def __post_init__(self) -> None:
        if self.entity_id is None and self.features is None:
            raise TypeError("an item has an entity_id, features, or both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An item that is ready to be sent, or the reason why it cannot be."""

    entity_id: str | None
    content: bytes
    problem: Problem | None = None


class Unsendable(Exception):
    """A value that came from data and that the wire cannot carry."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def id_text(value: str | int) -> str:
    """The written form of an id. TypeError for what is neither text nor an integer; Unsendable for what cannot be."""
    if isinstance(value, bool) or not (isinstance(value, str) or hasattr(value, "__index__")):
        raise TypeError(f"an entity id is text or an integer, not {type(value).__name__}")
    text = value if isinstance(value, str) else _decimal(index(value))
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Unsendable(invalid_id("the text has no UTF-8 form: it has half of a surrogate pair")) from None
    if size > MAX_ID_BYTES:
        raise Unsendable(invalid_id(f"an entity id has at most {MAX_ID_BYTES} bytes in UTF-8"))
    if _CONTROL.search(text):
        raise Unsendable(invalid_id("an entity id has no control characters"))
    return text


def in_path(entity_id: str) -> str | None:
    """The id as one segment of a path; None for an id that would not survive the way as such."""
    return None if entity_id in _EATEN else quote(entity_id, safe="")


def features_json(features: Features) -> bytes:
    """An object of JSON. TypeError for a value of a kind that is no feature; Unsendable names the field."""
    return _dump({name: _plain(value, name) for name, value in features.items()})


def entry(item: str | int | Item) -> Entry:
    """One item of a bulk call; what is wrong with its data costs only itself."""
    asked = item if isinstance(item, Item) else Item(item)
    entity_id: str | None = None
    members: list[bytes] = []
    try:
        if asked.entity_id is not None:
            entity_id = id_text(asked.entity_id)
            members.append(b'"entity_id":' + _dump(entity_id))
        if asked.features is not None:
            members.append(b'"features":' + features_json(asked.features))
    except Unsendable as error:
        return Entry(entity_id=entity_id, content=b"", problem=error.problem)
    return Entry(entity_id=entity_id, content=b"{" + b",".join(members) + b"}")


def slabs(items: Iterable[str | int | Item], *, most: int, most_bytes: int) -> Iterator[list[Entry]]:
    """The items in order, cut where a request would have too many items or bytes; a larger item goes alone."""
    slab: list[Entry] = []
    size = 0
    for one in map(entry, items):
        length = len(one.content) + 1
        if slab and (len(slab) == most or size + length > most_bytes):
            yield slab
            slab, size = [], 0
        slab.append(one)
        size += length
    if slab:
        yield slab


def items_json(entries: Iterable[Entry]) -> bytes:
    """The body of ``POST /score``."""
    return b'{"items":[' + b",".join(one.content for one in entries) + b"]}"


def _decimal(number: int) -> str:
    if number.bit_length() > 8 * MAX_ID_BYTES:  # Python refuses to write the longest
        raise Unsendable(invalid_id(f"an entity id has at most {MAX_ID_BYTES} bytes in UTF-8"))
    return str(number)


def _plain(value: object, name: str) -> object:
    """The value in JSON's own types: NaN is a missing value everywhere, and so null; NumPy's values give Python's."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return _number(value, name)
        case list() | tuple():
            return [_plain(one, name) for one in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), name)
    raise TypeError(
        f"feature {name}: {type(value).__name__} is no kind of feature value; "
        "send a number, text, a boolean, None, or a list of them"
    )


def _number(value: float, name: str) -> float | None:
    if math.isinf(value):
        raise Unsendable(rejected("a feature is infinite, which JSON cannot say", "not_finite", name))
    return None if math.isnan(value) else value


def _dump(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Unsendable(
            rejected("a text has no UTF-8 form: it has half of a surrogate pair", "wrong_type", None)
        ) from None
