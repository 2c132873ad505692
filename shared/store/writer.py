"""Loads a snapshot: registers it, writes its buckets, counts them and reads samples back."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from shared.layout import MARKER_FIELD, MARKER_VALUE, Keys, models_key
from shared.snapshot import Lookup, SnapshotMeta
from shared.store import refusals, scripts
from shared.store.codec import meta_of
from shared.store.interfaces import PublishBatch
from shared.store.link import Link
from shared.store.loader import Loader
from shared.store.lookup import plan

SLAB_COMMANDS = 1000
"""How many small commands go out before their replies are read."""

T = TypeVar("T")


class RedisSnapshotWriter:
    """``interfaces.SnapshotWriter`` on Redis or Valkey."""

    def __init__(self, link: Link, loader: Loader, keys: Keys) -> None:
        self._link = link
        self._loader = loader
        self._keys = keys

    def begin(self, meta: SnapshotMeta) -> None:
        keys = self._keys
        known = self._link.command("HGET", keys.snapshots(), meta.snapshot)
        if known is not None and meta_of(known).run_key != meta.run_key:
            raise refusals.of_another_run(meta.snapshot)
        self._link.command(
            *scripts.BEGIN.call(keys.active(), keys.states(), keys.snapshots(), meta.snapshot, meta.to_json())
        )
        self._link.command("SADD", models_key(keys.namespace), keys.model)
        for slab in slabs_of(self._buckets(meta), SLAB_COMMANDS):
            self._link.pipeline([("HSET", bucket, MARKER_FIELD, MARKER_VALUE) for bucket in slab])

    def write(self, meta: SnapshotMeta, batch: PublishBatch) -> int:
        if len(batch) and int(batch.buckets[-1]) >= meta.buckets:
            raise ValueError("the batch was sorted for another number of buckets")
        self._loader.load(self._keys.bucket_prefix(meta.snapshot), batch)
        return len(batch)

    def count(self, meta: SnapshotMeta) -> int:
        return sum(
            max(0, int(fields) - 1)  # without the marker; a lost bucket has not even that
            for slab in slabs_of(self._buckets(meta), SLAB_COMMANDS)
            for fields in self._link.pipeline([("HLEN", bucket) for bucket in slab])
        )

    def read(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        planned = plan(self._keys, meta, ids)
        replies = [reply for slab in slabs_of(planned.commands, SLAB_COMMANDS) for reply in self._link.hashes(slab)]
        return planned.answers(replies)

    def _buckets(self, meta: SnapshotMeta) -> Iterator[str]:
        return bucket_keys(self._keys, meta)


def bucket_keys(keys: Keys, meta: SnapshotMeta) -> Iterator[str]:
    """Every key of the snapshot, by name."""
    return (keys.bucket(meta.snapshot, bucket) for bucket in range(meta.buckets))


def slabs_of(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """The things in lists of at most ``size``."""
    rest = iter(things)
    while slab := list(islice(rest, size)):
        yield slab
