"""What serves requests from the active snapshot."""

from collections.abc import Sequence

from shared.layout import Keys
from shared.snapshot import Active, Listed, Lookup, SnapshotMeta
from shared.store import scripts
from shared.store.codec import active_of, listed_of, pairs
from shared.store.link import AsyncLink
from shared.store.lookup import plan


class RedisReader:
    """``interfaces.SnapshotReader`` on Redis or Valkey."""

    def __init__(self, link: AsyncLink, keys: Keys) -> None:
        self._link = link
        self._keys = keys

    async def active(self) -> Active | None:
        return active_of(await self._link.command(*scripts.ACTIVE.call(self._keys.active(), self._keys.snapshots())))

    async def lookup(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        planned = plan(self._keys, meta, ids)
        return planned.answers(await self._link.hashes(planned.commands))

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
