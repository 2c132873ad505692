"""``--where``: a row filter in a small language, the same for every file format.

::

    condition  = comparison { "and" comparison }
    comparison = column ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) literal
               | column "in" "(" literal { "," literal } ")"
    column     = a bare name, or any name in double quotes
    literal    = 'text' (a quote inside is written twice) | a number | true | false

A missing value meets no comparison. Text compared with a number is read as a number (so a CSV file filters like a
Parquet file); dates and times are compared with text in ISO form.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from shared.errors import SettingsError

Literal = str | int | float | bool

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>"[^"]+")|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<word>[A-Za-z_][A-Za-z0-9_.]*)|(?P<sign><=|>=|!=|=|<|>|\(|\)|,))""",
    re.VERBOSE,
)
_NUMBER_TEXT = r"^[ \t]*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
_KERNELS: dict[str, Callable[[object, object], pa.ChunkedArray]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison: the column, the sign, what it is compared with (several for ``in``), and where it was written."""

    column: str
    sign: str
    literals: tuple[Literal, ...]
    position: int

    def mask(self, table: pa.Table) -> pa.ChunkedArray:
        """Boolean [rows], null where the value is missing."""
        column = table[self.column]
        try:
            masks = [_compare(column, self.sign, literal) for literal in self.literals]
        except (pa.ArrowException, TypeError, OverflowError):
            raise _error(
                self.position, f"column {self.column} is {column.type} and cannot be compared with that"
            ) from None
        return reduce(pc.or_, masks)


@dataclass(frozen=True, slots=True)
class Where:
    """A parsed filter: all of its comparisons must hold."""

    comparisons: tuple[Comparison, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return tuple(dict.fromkeys(comparison.column for comparison in self.comparisons))

    def apply(self, table: pa.Table) -> pa.Table:
        """The rows that meet it; SettingsError names the place where a column and a literal do not fit."""
        masks = (comparison.mask(table) for comparison in self.comparisons)
        return table.filter(reduce(pc.and_, masks))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse_where(text: str) -> Where:
    """Reads the filter; SettingsError names the position (from 1) and what was expected there."""
    return Where(tuple(_comparisons(_tokens(text))))


def _tokens(text: str) -> list[_Token]:
    tokens, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            start = place + len(text[place:]) - len(text[place:].lstrip()) + 1
            raise _error(
                start, "a text needs a closing quote" if text[start - 1] in "'\"" else "this is not understood"
            )
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) + 1))
        place = match.end()
    return [*tokens, _Token("end", "", len(text) + 1)]


def _comparisons(tokens: list[_Token]) -> list[Comparison]:
    found = []
    while True:
        comparison, tokens = _comparison(tokens)
        found.append(comparison)
        joint, *tokens = tokens
        if joint.kind == "end":
            return found
        if joint.text.lower() != "and":
            raise _error(joint.position, "expected 'and' or the end; 'or' is not part of the language, 'in (...)' is")


def _comparison(tokens: list[_Token]) -> tuple[Comparison, list[_Token]]:
    name, sign, *rest = [*tokens, tokens[-1]]
    if name.kind not in {"word", "quoted"}:
        raise _error(name.position, "expected the name of a column")
    column = name.text.strip('"')
    if sign.text in _KERNELS:
        return Comparison(column, sign.text, (_literal(rest[0]),), name.position), rest[1:]
    if sign.text.lower() != "in":
        raise _error(sign.position, "expected = != < <= > >= or in")
    literals, rest = _list(rest)
    return Comparison(column, "=", literals, name.position), rest


def _list(tokens: list[_Token]) -> tuple[tuple[Literal, ...], list[_Token]]:
    end = next((index for index, token in enumerate(tokens) if token.text == ")" and token.kind == "sign"), None)
    if tokens[0].text != "(" or end is None:
        raise _error(tokens[0].position, "expected a list such as ('a', 'b')")
    inside = tokens[1:end]
    for comma in inside[1::2]:
        if comma.text != ",":
            raise _error(comma.position, "expected a comma")
    if len(inside) % 2 == 0:
        raise _error(tokens[end].position, "expected a text, a number, true or false")
    return tuple(_literal(token) for token in inside[::2]), tokens[end + 1 :]


def _literal(token: _Token) -> Literal:
    if token.kind == "text":
        return token.text[1:-1].replace("''", "'")
    if token.kind == "number":
        return int(token.text) if re.fullmatch(r"[+-]?\d+", token.text) else float(token.text)
    if token.kind == "word" and token.text.lower() in {"true", "false"}:
        return token.text.lower() == "true"
    raise _error(token.position, "expected a text in single quotes, a number, true or false")


def _error(position: int, message: str) -> SettingsError:
    return SettingsError(f"--where: position {position}: {message}")


def _compare(column: pa.ChunkedArray, sign: str, literal: Literal) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _compare(column.cast(kind.value_type), sign, literal)
    if _is_text(kind) and isinstance(literal, bool):
        column = _as_boolean(column)
    elif _is_text(kind) and not isinstance(literal, str):
        column = pc.if_else(pc.match_substring_regex(column, _NUMBER_TEXT), column, pa.scalar(None, kind))
        column = pc.utf8_trim_whitespace(column).cast(pa.float64())
    elif isinstance(literal, bool) != pa.types.is_boolean(kind) or isinstance(literal, str) != _takes_text(kind):
        raise TypeError
    return _KERNELS[sign](column, _scalar(literal, column.type))


def _as_boolean(column: pa.ChunkedArray) -> pa.ChunkedArray:
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(column))
    known = pc.is_in(lower, value_set=pa.array(["true", "1", "false", "0"]))
    true = pc.is_in(lower, value_set=pa.array(["true", "1"]))
    return pc.if_else(known, true, pa.scalar(None, pa.bool_()))


def _scalar(literal: Literal, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_timestamp(kind):
        return pa.scalar(literal).cast(pa.timestamp(kind.unit)).cast(kind)  # without a zone it is taken as UTC
    if pa.types.is_temporal(kind) or pa.types.is_floating(kind) or _is_text(kind):
        return pa.scalar(literal).cast(kind)
    if pa.types.is_uint64(kind) and isinstance(literal, int) and literal >= 0:
        return pa.scalar(literal, kind)
    return pa.scalar(literal)


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _takes_text(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_temporal(kind))
