"""What serves requests from the active snapshot."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from shared.layout import MARKER_FIELD, Keys
from shared.snapshot import Absent, Active, Listed, Lookup, Lost, SnapshotMeta
from shared.store import scripts
from shared.store.codec import active_of, listed_of, pairs
from shared.store.interfaces import Peeker
from shared.store.link import AsyncLink
from shared.store.lookup import plan


class RedisReader:
    """``interfaces.SnapshotReader`` on Redis or Valkey."""

    def __init__(self, link: AsyncLink, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._prefix = ("", b"")
        """Of the snapshot that was last looked at: its name, and what its buckets' keys share."""

    async def active(self) -> Active | None:
        return active_of(await self._link.command(*scripts.ACTIVE.call(self._keys.active(), self._keys.snapshots())))

    async def lookup(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        planned = plan(self._keys, meta, ids)
        return planned.answers(await self._link.hashes(planned.commands))

    async def peek(self, meta: SnapshotMeta, entity_id: bytes) -> bytes | Absent | Lost:
        return _peeked(await self._link.pair(self._key(meta, entity_id), entity_id, MARKER_FIELD))

    def peek_for(self, meta: SnapshotMeta, entity_id: bytes, peeker: Peeker) -> bool:
        return self._link.pair_for(self._key(meta, entity_id), entity_id, MARKER_FIELD, _Asking(peeker))

    def _key(self, meta: SnapshotMeta, entity_id: bytes) -> bytes:
        if self._prefix[0] != meta.snapshot:
            self._prefix = (meta.snapshot, self._keys.bucket_prefix(meta.snapshot).encode())
        return b"%b%d" % (self._prefix[1], crc32(entity_id) % meta.buckets)

    async def snapshots(self) -> list[Listed]:
        metas, states, active = await self._link.pipeline(
            [
                ("HGETALL", self._keys.snapshots()),
                ("HGETALL", self._keys.states()),
                ("HGET", self._keys.active(), "snapshot"),
            ]
        )
        return listed_of(pairs(metas), pairs(states), active)

    async def ping(self) -> None:
        await self._link.command("PING")


class _Asking:
    """Takes the reply that ``peek_for`` asked for."""

    __slots__ = ("_peeker",)

    def __init__(self, peeker: Peeker) -> None:
        self._peeker = peeker

    def done(self) -> bool:
        return False

    def set_result(self, reply: Any) -> None:
        if isinstance(reply, Exception):
            self._peeker.failed()
        else:
            self._peeker.found(_peeked(reply))

    def set_exception(self, error: BaseException) -> None:  # noqa: ARG002 - ``peek`` finds out
        self._peeker.failed()


def _peeked(reply: Any) -> bytes | Absent | Lost:
    if not isinstance(reply, list) or len(reply) != 2:  # noqa: PLR2004 - the value and the marker
        return Lost("corrupt")
    value: bytes | None
    value, marker = reply
    if value is not None:
        return value
    return Lost("bucket") if marker is None else Absent()
