"""What is there: versions, snapshots, the pointer and its history."""

from shared.layout import Keys
from shared.snapshot import Active, Flip, Listed
from shared.store import refusals, scripts
from shared.store.codec import active_of, flip_of, listed_of, pairs
from shared.store.link import Link


class RedisCatalogue:
    """``interfaces.Catalogue`` on Redis or Valkey."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys

    def claim(self, version: str, bundle_digest: str) -> None:
        if self._link.command("HSETNX", self._keys.versions(), version, bundle_digest):
            return
        if self._link.command("HGET", self._keys.versions(), version) != bundle_digest.encode():
            raise refusals.conflict(self._keys.model, version)

    def active(self) -> Active | None:
        return active_of(self._link.command(*scripts.ACTIVE.call(self._keys.active(), self._keys.snapshots())))

    def snapshots(self) -> list[Listed]:
        metas, states, active = self._link.pipeline(
            [
                ("HGETALL", self._keys.snapshots()),
                ("HGETALL", self._keys.states()),
                ("HGET", self._keys.active(), "snapshot"),
            ]
        )
        return listed_of(pairs(metas), pairs(states), active)

    def history(self) -> list[Flip]:
        return [flip_of(text) for text in self._link.command("LRANGE", self._keys.history(), 0, -1)]
