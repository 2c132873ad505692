"""Entity ids: one written form for each, whatever brought it here.

An id is text and exact: ``007`` is not ``7``, ``a`` is not ``A``, no Unicode normalisation is applied. It has 1 to 256
bytes in UTF-8, no control characters, and is not only blanks. An integer is written in decimal, so that 5 from an
int32 column, 5 in JSON and ``"5"`` are one entity. Floats, booleans and all other types are refused: ``5.0`` may have
been ``5`` or ``5.0``, and guessing would answer with another entity's score.
"""

import re

from shared.codes import Code

MAX_ID_BYTES = 256
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def id_text(value: object) -> str | Code:
    """The written form of an id, or why it cannot be one.

    Parameters: ``value`` is text or an integer (NumPy and Arrow scalars come as Python values).
    """
    if value is None:
        return Code.NULL_ID
    if isinstance(value, bool) or not isinstance(value, int | str):
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
