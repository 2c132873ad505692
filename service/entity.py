"""The entity id in a path, read from the bytes that came over the wire.

The decoded path that a server offers is lossy: bytes that are not UTF-8 become replacement characters, and two
different ids would become one. Here each id either is exactly what was sent, or is refused.
"""

import re
from urllib.parse import unquote_to_bytes

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.types import Scope

from shared.codes import Code
from shared.errors import InvalidEntityId
from shared.ids import MAX_ID_BYTES, id_text

RULE = f"1 to {MAX_ID_BYTES} bytes of UTF-8, not only blanks, no control characters"

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class _EntityConvertor(PathConvertor):
    """The router's ``path`` stops at a line break, and would answer that there is no such path where the answer is
    that there is no such id."""

    regex = "(?s:.*)"


register_url_convertor("entity", _EntityConvertor())  # at import, because routes are compiled as they are declared


def entity_of(scope: Scope, prefix: str) -> str:
    """The id behind ``prefix`` (such as ``/score/``) in the raw path: ``/score/kg%2Fs`` is ``kg/s``.

    InvalidEntityId where the bytes are not percent-encoded UTF-8, or the text cannot be an id.
    """
    raw = scope["raw_path"]
    if _BAD_ESCAPE.search(raw):
        raise InvalidEntityId("the path has a % that begins no escape; write % as %25")
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidEntityId("the entity id is not UTF-8; percent-encode its UTF-8 bytes") from None
    return checked(path.removeprefix(scope.get("root_path", "")).removeprefix(prefix))


def checked(value: object) -> str:
    """The written form of an id that came as text or as an integer; InvalidEntityId says what to send instead."""
    text = id_text(value)
    if not isinstance(text, Code):
        return text
    if isinstance(value, str):
        raise InvalidEntityId(f"an entity id has {RULE}")
    raise InvalidEntityId("an entity id is text or an integer; send it as text")
