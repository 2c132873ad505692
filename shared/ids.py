"""Entity ids: one written form for each, whatever brought it here.

An id is text and exact: ``007`` is not ``7``, ``a`` is not ``A``, no Unicode normalisation is applied. It has 1 to 256
bytes in UTF-8, no control characters, and is not only blanks. An integer is written in decimal, so that 5 from an
int32 column, 5 in JSON and ``"5"`` are one entity. Floats, booleans and all other types are refused: ``5.0`` may have
been ``5`` or ``5.0``, and guessing would answer with another entity's score.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shared.codes import Code
from shared.errors import ColumnRefused

MAX_ID_BYTES = 256
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_CONTROL_RE2 = r"[\x{00}-\x{1f}\x{7f}-\x{9f}]"


def id_text(value: object) -> str | Code:
    """The written form of an id, or why it cannot be one.

    Parameters: ``value`` is text or an integer (NumPy and Arrow scalars come as Python values).
    """
    if value is None:
        return Code.NULL_ID
    if isinstance(value, bool) or not isinstance(value, int | str):
        return Code.INVALID_ID
    if isinstance(value, int) and value.bit_length() > 8 * MAX_ID_BYTES:  # Python refuses to write the longest
        return Code.INVALID_ID
    text = str(value)
    return text if is_valid_id(text) else Code.INVALID_ID


def is_valid_id(text: str) -> bool:
    """Whether the text can be an entity id (see the module's rules)."""
    if not text or text.isspace() or _CONTROL.search(text):
        return False
    try:
        return len(text.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:  # a lone surrogate: no UTF-8 form, so no key
        return False


@dataclass(frozen=True, slots=True)
class IdColumn:
    """A column of ids in their written form.

    ``text``: string column [rows], null where the id was refused; ``refused``: position -> why, in row order.
    """

    text: pa.Array
    refused: dict[int, Code]


def id_column(column: pa.Array | pa.ChunkedArray, name: str = "the id column") -> IdColumn:
    """``id_text`` for a whole column. ColumnRefused where the column's type has no exact written form."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type == pa.string() and _is_plain(column):
        return IdColumn(text=column, refused={})
    text = _utf8(_as_binary(column, name))
    invalid = pc.fill_null(_is_invalid(text), fill_value=True)
    missing = column.is_null()
    positions = pc.indices_nonzero(invalid).to_numpy()
    nulls = missing.to_numpy(zero_copy_only=False)
    refused = {int(row): Code.NULL_ID if nulls[row] else Code.INVALID_ID for row in positions}
    return IdColumn(text=pc.if_else(invalid, pa.scalar(None, pa.string()), text), refused=refused)


def require_id_type(kind: pa.DataType, name: str) -> None:
    """Lets integers, text, and dictionaries of these pass; ColumnRefused for any other type."""
    if not _is_id_type(kind):
        raise ColumnRefused(
            f"column {name} is {kind}, which cannot be an entity id: ids are text or integers, and 5.0 could "
            "have been 5; write the column as text"
        )


def _is_id_type(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_id_type(kind.value_type)
    return _is_text(kind) or any(test(kind) for test in (pa.types.is_integer, pa.types.is_null))


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_plain(text: pa.Array) -> bool:
    """Whether every id is valid for the simplest of reasons: visible ASCII, neither empty nor long."""
    if text.null_count:
        return False
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    sizes = np.diff(offsets)
    if not len(text) or sizes.min() < 1 or sizes.max() > MAX_ID_BYTES:
        return False
    data = np.frombuffer(text.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return bool(data.min() > ord(" ") and data.max() <= ord("~"))


def _as_binary(column: pa.Array, name: str) -> pa.Array:
    """The ids' bytes, not yet known to be UTF-8: files may hold text columns whose bytes are not."""
    require_id_type(column.type, name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        return column.cast(pa.binary_view()).cast(pa.binary())
    if _is_text(column.type):
        return column.cast(pa.large_binary()).cast(pa.binary())
    return column.cast(pa.string()).cast(pa.binary())


def _utf8(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # rare enough to look at each value in Python
        return pa.array([_decoded(value) for value in column.to_pylist()], pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _is_invalid(text: pa.Array) -> pa.Array:
    """The rules of ``is_valid_id`` as kernels; null where the text is null."""
    bad_length = pc.or_(pc.equal(pc.binary_length(text), 0), pc.greater(pc.binary_length(text), MAX_ID_BYTES))
    blank = pc.utf8_is_space(text)
    control = pc.match_substring_regex(text, _CONTROL_RE2)
    return pc.or_(pc.or_(bad_length, blank), control)
