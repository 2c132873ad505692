"""One type for each column of a table that lies in several files."""

from collections.abc import Mapping

import pyarrow as pa

from shared.errors import SourceError


def agreed(name: str, kinds: Mapping[str, pa.DataType]) -> pa.DataType:
    """The type that a column is read as; ``kinds`` says which one it has in each file.

    A file where the column is all null (Arrow's ``null`` type) agrees with any. Widths of integers and of floats may
    differ; an integer column in one file and a float in another (pandas, where it met a null) become float64, where
    every integer must then fit exactly. Other differences are refused: text in one file and numbers in another would
    be read by different rules.
    """
    found = {path: plain(kind) for path, kind in kinds.items() if not pa.types.is_null(plain(kind))}
    distinct = set(found.values())
    if not distinct:
        return pa.null()
    if len(distinct) == 1:
        return distinct.pop()
    if all(map(_is_text, distinct)):
        return pa.large_string()
    if all(map(pa.types.is_signed_integer, distinct)):
        return pa.int64()
    if all(map(pa.types.is_unsigned_integer, distinct)):
        return pa.uint64()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in distinct):
        return pa.float64() if any(map(pa.types.is_floating, distinct)) else pa.int64()
    first, second = _two_that_differ(found)
    raise SourceError(
        f"column {name} is {found[first]} in {first} and {found[second]} in {second}; write it with one type"
    )


def plain(kind: pa.DataType) -> pa.DataType:
    """The type without what only concerns how it is laid out: dictionaries are their values, views are text."""
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    return pa.string() if pa.types.is_string_view(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or bool(pa.types.is_large_string(kind))


def _two_that_differ(found: Mapping[str, pa.DataType]) -> tuple[str, str]:
    first = next(iter(found))
    return first, next(path for path, kind in found.items() if kind != found[first])
