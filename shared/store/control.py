"""Which snapshot is served: the pointer, states, and what is removed."""

from shared.clock import Clock
from shared.layout import Keys, models_key
from shared.snapshot import Flip, Lease, SnapshotMeta, SnapshotState
from shared.store import refusals, scripts
from shared.store.catalogue import RedisCatalogue
from shared.store.codec import flip_text, meta_of
from shared.store.history import HISTORY_LENGTH, PROMOTE, ROLLBACK, previous
from shared.store.leases import lease_value
from shared.store.link import Link
from shared.store.writer import SLAB_COMMANDS, bucket_keys, slabs_of


class RedisControl:
    """``interfaces.Control`` on Redis or Valkey."""

    def __init__(self, link: Link, keys: Keys, clock: Clock) -> None:
        self._link = link
        self._keys = keys
        self._clock = clock
        self._catalogue = RedisCatalogue(link, keys)

    def promote(self, snapshot: str, lease: Lease, *, by: str, forced: bool = False) -> Flip:
        return self._flip(snapshot, lease, by=by, action=PROMOTE, forced=forced)

    def rollback(self, lease: Lease, *, by: str) -> Flip:
        usable = {row.meta.snapshot for row in self._catalogue.snapshots() if row.state is SnapshotState.READY}
        snapshot = previous(self._catalogue.history(), usable)
        if snapshot is None:
            raise refusals.nothing_before()
        return self._flip(snapshot, lease, by=by, action=ROLLBACK, forced=False)

    def mark(self, snapshot: str, state: SnapshotState) -> None:
        if not self._link.command(*scripts.REPLACE.call(self._keys.states(), snapshot, state.value)):
            raise refusals.unknown(snapshot)

    def update(self, meta: SnapshotMeta) -> None:
        if not self._link.command(*scripts.REPLACE.call(self._keys.snapshots(), meta.snapshot, meta.to_json())):
            raise refusals.unknown(meta.snapshot)

    def amend(self, meta: SnapshotMeta, lease: Lease) -> None:
        keys = self._keys
        names = (keys.active(), keys.lease(), keys.epoch(), keys.snapshots())
        values = (lease_value(lease), lease.epoch, meta.to_json())
        outcome = self._link.command(*scripts.AMEND.call(*names, meta.snapshot, *values))
        if outcome != b"ok":
            raise refusals.not_amended(outcome.decode(), meta.snapshot, lease)

    def retire(self, snapshot: str, *, force: bool = False) -> int:
        keys = self._keys
        text = self._link.command("HGET", keys.snapshots(), snapshot)
        if text is None:
            raise refusals.unknown(snapshot)
        outcome = self._link.command(*scripts.RETIRING.call(keys.active(), keys.states(), snapshot, int(force)))
        if outcome != b"ok":
            raise refusals.not_retired(outcome.decode(), snapshot)
        removed = self._unlink(meta_of(text))
        if not self._link.command(*scripts.RETIRED.call(keys.states(), keys.snapshots(), snapshot)):
            self._link.command("SREM", models_key(keys.namespace), keys.model)
        return removed

    def _unlink(self, meta: SnapshotMeta) -> int:
        return sum(
            int(removed)
            for slab in slabs_of(bucket_keys(self._keys, meta), SLAB_COMMANDS)
            for removed in self._link.pipeline([("UNLINK", key) for key in slab])
        )

    def _flip(self, snapshot: str, lease: Lease, *, by: str, action: str, forced: bool) -> Flip:
        flip = Flip(
            snapshot=snapshot, at=int(self._clock.now()), by=by, action=action, forced=forced, epoch=lease.epoch
        )
        keys = self._keys
        names = (keys.active(), keys.lease(), keys.epoch(), keys.states(), keys.history())
        values = (lease_value(lease), lease.epoch, flip.at, int(forced), flip_text(flip), HISTORY_LENGTH)
        outcome = self._link.command(*scripts.PROMOTE.call(*names, snapshot, *values))
        if outcome != b"ok":
            raise refusals.not_promoted(outcome.decode(), snapshot, lease)
        return flip
