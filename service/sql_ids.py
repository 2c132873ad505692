"""How the ids of a database column are written: one text for each, the same as everywhere."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import types

from shared.errors import ColumnRefused

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_BITS = 64
_KINDS_OF_BITS: tuple[tuple[type[types.TypeEngine[int]], int], ...] = (
    (types.SmallInteger, 16),
    (types.BigInteger, 64),
    (types.Integer, 32),
)


@dataclass(frozen=True, slots=True)
class IdKind:
    """``bind``: the value that the column has for an id, None where it can have none. ``text``: the other way.

    A column of integers has no ``007``: only the text that an integer is written as can be one of its ids.
    """

    bind: Callable[[str], object | None]
    text: Callable[[object], object]


def id_kind(kind: types.TypeEngine[object], column: str, *, dialect: str) -> IdKind:
    """The kind of a column of ids; ColumnRefused for a type whose values have no exact written form."""
    if isinstance(kind, types.CHAR) and dialect != "sqlite":
        raise ColumnRefused(f"features: column {column} is {kind}, which pads ids with blanks; make it text, in a view")
    if isinstance(kind, types.String) and not isinstance(kind, types.Enum):
        return IdKind(bind=_same, text=_same)
    if isinstance(kind, types.Integer):
        bits = _BITS if dialect == "sqlite" else next(bits for each, bits in _KINDS_OF_BITS if isinstance(kind, each))
        return IdKind(bind=_integers(bits), text=_written)
    if isinstance(kind, types.Uuid):
        return IdKind(bind=_uuid, text=_written)
    name = "of no declared type" if isinstance(kind, types.NullType) else str(kind)
    raise ColumnRefused(
        f"features: column {column} is {name}, which cannot be an entity id: ids are text, integers or UUIDs, and 5.0 "
        "could have been 5; make it text, in a view"
    )


def _same(value: object) -> object:
    return value


def _written(value: object) -> object:
    return str(value)


def _integers(bits: int) -> Callable[[str], int | None]:
    limit = 2 ** (bits - 1)

    def bind(text: str) -> int | None:
        number = int(text) if _WHOLE.fullmatch(text) else limit
        return number if -limit <= number < limit else None

    return bind


def _uuid(text: str) -> UUID | None:
    try:
        value = UUID(text)
    except ValueError:
        return None
    return value if str(value) == text else None
