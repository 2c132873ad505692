"""What the control keys hold, read back: metadata, lists and history. Bytes that are not ours are StoreCorrupt."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import orjson
from pydantic import TypeAdapter, ValidationError

from shared.errors import StoreCorrupt
from shared.snapshot import Active, Flip, Listed, SnapshotMeta, SnapshotState

_FLIP: TypeAdapter[Flip] = TypeAdapter(Flip)
_ACTIVE_PARTS = 3


@lru_cache(maxsize=256)
def meta_of(text: bytes) -> SnapshotMeta:
    """Cached by its text, so that polling the pointer costs no parsing."""
    try:
        return SnapshotMeta.model_validate_json(text)
    except ValidationError:
        raise StoreCorrupt("the store's metadata of a snapshot does not read; publish it again") from None


def active_of(reply: Sequence[bytes | None] | None) -> Active | None:
    """Reads the reply of ``scripts.ACTIVE``."""
    if reply is None:
        return None
    if not isinstance(reply, list) or len(reply) != _ACTIVE_PARTS:
        raise StoreCorrupt("the store answers what no script of ours returns; is it Redis or Valkey?")
    snapshot, epoch, text = reply
    if snapshot is None or epoch is None or text is None or not epoch.isdigit():
        raise StoreCorrupt("the store's pointer leads to a snapshot without metadata; publish or roll back")
    return Active(meta=meta_of(bytes(text)), epoch=int(epoch))


def listed_of(metas: Mapping[bytes, bytes], states: Mapping[bytes, bytes], active: bytes | None) -> list[Listed]:
    """One row for each snapshot, newest first."""
    rows = [
        Listed(meta=meta_of(text), state=_state(states.get(snapshot)), active=snapshot == active)
        for snapshot, text in metas.items()
    ]
    return sorted(rows, key=lambda row: (row.meta.scored_at, row.meta.snapshot), reverse=True)


def pairs(reply: Sequence[bytes] | Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """The reply of HGETALL: a flat list on the wire, a dict where the client has already paired it."""
    if isinstance(reply, Mapping):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


def flip_text(flip: Flip) -> bytes:
    return orjson.dumps(flip)


def flip_of(text: bytes) -> Flip:
    try:
        return _FLIP.validate_json(text)
    except ValidationError:
        raise StoreCorrupt("the store's history does not read") from None


def _state(text: bytes | None) -> SnapshotState:
    """One whose state was lost counts as half-written: it is not served, and can be published again."""
    try:
        return SnapshotState((text or b"").decode())
    except ValueError:
        return SnapshotState.WRITING
