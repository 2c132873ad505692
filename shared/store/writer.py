"""Loads a snapshot: registers it, writes its buckets, counts them and reads them back."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
import pyarrow as pa

from shared.layout import MARKER_FIELD, Keys, models_key
from shared.snapshot import Lookup, SnapshotMeta
from shared.store import refusals, scripts
from shared.store.codec import meta_of, pairs
from shared.store.interfaces import PublishBatch
from shared.store.link import Link
from shared.store.loader import Loader
from shared.store.lookup import plan
from shared.store.resp import runs

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

    def fill(self, meta: SnapshotMeta, batches: Iterable[PublishBatch]) -> int:
        filled = np.zeros(meta.buckets, np.bool_)
        sizes: list[int] = []

        def noted() -> Iterator[PublishBatch]:
            for batch in batches:
                if len(batch) and int(batch.buckets[-1]) >= meta.buckets:
                    raise ValueError("the batch was sorted for another number of buckets")
                filled[batch.buckets] = True
                sizes.append(len(batch))
                yield batch

        prefix = self._keys.bucket_prefix(meta.snapshot)
        self._loader.load(prefix, noted())
        self._loader.mark(prefix, np.flatnonzero(~filled).tolist())
        return sum(sizes)

    def count(self, meta: SnapshotMeta) -> int:
        return self._loader.count(self._keys.bucket_prefix(meta.snapshot), meta.buckets)

    def read(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        planned = plan(self._keys, meta, ids)
        replies = [reply for slab in slabs_of(planned.commands, SLAB_COMMANDS) for reply in self._link.hashes(slab)]
        return planned.answers(replies)

    def read_buckets(self, meta: SnapshotMeta, buckets: range) -> PublishBatch:
        ids: list[str] = []
        values: list[bytes] = []
        places: list[int] = []
        for slab in slabs_of(buckets, SLAB_COMMANDS):
            replies = self._link.pipeline([("HGETALL", self._keys.bucket(meta.snapshot, bucket)) for bucket in slab])
            for bucket, reply in zip(slab, replies, strict=True):
                fields = dict(pairs(reply))
                if fields.pop(MARKER_FIELD, None) is None:
                    raise refusals.bucket_gone(meta.snapshot)
                ids += map(bytes.decode, fields)
                values += fields.values()
                places += [bucket] * len(fields)
        return PublishBatch(
            ids=pa.array(ids, pa.string()), buckets=np.array(places, np.uint32), values=pa.array(values, pa.binary())
        )

    def replace(self, meta: SnapshotMeta, batch: PublishBatch) -> int:
        ids, values = batch.ids.to_pylist(), batch.values.to_pylist()
        commands = (
            scripts.WRITE_VALUES.call(
                self._keys.bucket(meta.snapshot, bucket),
                *(text for row in range(first, stop) for text in (ids[row], values[row])),
            )
            for bucket, first, stop in runs(batch.buckets)
        )
        return sum(sum(map(int, self._link.pipeline(slab))) for slab in slabs_of(commands, SLAB_COMMANDS))


def bucket_keys(keys: Keys, meta: SnapshotMeta) -> Iterator[str]:
    """Every key of the snapshot, by name."""
    return (keys.bucket(meta.snapshot, bucket) for bucket in range(meta.buckets))


def slabs_of(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """The things in lists of at most ``size``."""
    rest = iter(things)
    while slab := list(islice(rest, size)):
        yield slab
