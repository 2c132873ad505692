"""A copy of the active snapshot in which a run's entities take the place of the old ones.

It is read from the store, bucket by bucket, by name: the store has what readers see, and all of it: what earlier runs
over a part changed, and the scores that the service added, which are of the same bits. The run's own parts, on any
machine, would have neither. Lost by the store, the copy is made again by the same commands in the same order, without
scoring. Memory is bounded by the spool, however large the snapshot is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batch_job.content import PASS_ROWS, SAMPLES, Content, Slabs, sorted_slabs
from batch_job.spool import MEMORY_ROWS, Spool
from shared.layout import buckets_of, sizes, unpack
from shared.snapshot import ENTITIES_PER_BUCKET, Lookup, SnapshotMeta
from shared.store import refusals
from shared.store.interfaces import PublishBatch, SnapshotWriter

BUCKETS_READ = 1000
"""How many buckets are read at once."""


def packing(meta: SnapshotMeta, content: Content) -> SnapshotMeta:
    """By what a run's own values are packed and spread: the snapshot's buckets, the run's moment."""
    return meta.model_copy(update={"scored_at": content.manifest.started_at, "published": content.published()})


@dataclass(slots=True)
class Copy:
    """The entities of the copy on their way to the store. Once all were given: how many, and what must come back."""

    base: SnapshotMeta
    meta: SnapshotMeta
    content: Content
    writer: SnapshotWriter
    renew: Callable[[], None]
    memory_rows: int = MEMORY_ROWS
    entities: int = 0
    samples: dict[str, Lookup] = field(default_factory=dict)

    def batches(self) -> Iterator[PublishBatch]:
        """All entities, sorted by bucket, spooled to disk if they are many. StoreCorrupt if the base is not whole."""
        passes = -(-self.meta.buckets * ENTITIES_PER_BUCKET // PASS_ROWS)
        with Spool(self.content.run_dir / "spool-copy", passes, memory_rows=self.memory_rows) as spool:
            for table in self._rows():
                buckets = table["bucket"].to_numpy().astype(np.uint64)
                spool.add(table, (buckets * passes // self.meta.buckets).astype(np.uint32))
                self.renew()
            for table in spool.tables():
                for batch in sorted_slabs(_merged(table)):
                    self._sample(batch.ids, batch.values)
                    self.entities += len(batch)
                    yield batch
                    self.renew()

    def _rows(self) -> Iterator[pa.Table]:
        own = Slabs(self.content, packing(self.meta, self.content), self.renew, memory_rows=self.memory_rows)
        for batch in own.batches():
            yield _table(batch, self.meta.buckets, own=True)
        self.samples |= own.samples
        held, known_sizes = 0, pa.array(sizes(len(self.meta.columns)), pa.int32())
        for first in range(0, self.base.buckets, BUCKETS_READ):
            batch = self.writer.read_buckets(self.base, range(first, min(first + BUCKETS_READ, self.base.buckets)))
            held += len(batch)
            if not pc.all(pc.is_in(pc.binary_length(batch.values), value_set=known_sizes)).as_py():
                raise refusals.bucket_gone(self.base.snapshot)
            yield _table(batch, self.meta.buckets, own=False)
        if held < self.base.published:
            raise refusals.bucket_gone(self.base.snapshot)

    def _sample(self, ids: pa.Array, values: pa.Array) -> None:
        stride = max(1, self.meta.published // SAMPLES)
        for row in range(-self.entities % stride, len(ids), stride):
            self.samples[ids[row].as_py()] = unpack(values[row].as_py(), len(self.meta.columns), self.meta.fields)


def _table(batch: PublishBatch, buckets: int, *, own: bool) -> pa.Table:
    columns = {"id": batch.ids, "bucket": buckets_of(batch.ids, buckets), "value": batch.values}
    return pa.table({**columns, "own": pa.repeat(own, len(batch))})


def _merged(table: pa.Table) -> pa.Table:
    """Each entity once: the run's own value where there is one."""
    own, old = table.filter(table["own"]), table.filter(pc.invert(table["own"]))
    return pa.concat_tables([own, old.filter(pc.invert(pc.is_in(old["id"], value_set=own["id"].combine_chunks())))])
