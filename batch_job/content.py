"""What a run's parts hold, as the store wants it: packed values, sorted by bucket, in bounded slabs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batch_job.manifest import RunManifest
from batch_job.parts import part_digest, read_part, score_names
from batch_job.spool import MEMORY_ROWS, Spool
from shared.codes import Code
from shared.errors import RunError
from shared.layout import NO_FIELD, buckets_of, pack_columns, unpack
from shared.snapshot import Lookup, SnapshotMeta
from shared.store.interfaces import PublishBatch

PASS_ROWS = 500_000
SLAB_ROWS = 50_000
SAMPLES = 200


@dataclass(frozen=True, slots=True)
class Content:
    """The parts of a run that has all of them."""

    run_dir: Path
    manifest: RunManifest

    def require_unchanged(self) -> None:
        """The files are those that the run wrote; RunError names one that is not."""
        for part, path in zip(self.manifest.parts, self.manifest.part_paths(self.run_dir), strict=True):
            if not path.is_file() or part_digest(path) != part.sha256:
                raise RunError(f"{path}: not the part that the run wrote; remove it and run the backfill again")

    def tables(self) -> Iterator[pa.Table]:
        """All parts, in order."""
        return map(read_part, self.manifest.part_paths(self.run_dir))

    def scores(self) -> Iterator[pa.Table]:
        """The same, without what is no score."""
        names = score_names(self.manifest.columns)
        return (read_part(path, names) for path in self.manifest.part_paths(self.run_dir))

    def published(self) -> int:
        """How many entities the store will hold: all rows that have an id."""
        ids = (read_part(path, ["entity_id"])["entity_id"] for path in self.manifest.part_paths(self.run_dir))
        return sum(len(column) - column.null_count for column in ids)


@dataclass(slots=True)
class Slabs:
    """The entities of a snapshot on their way to the store. ``samples``, once all were given: what must come back."""

    content: Content
    meta: SnapshotMeta
    renew: Callable[[], None]
    """Called at least once for every part and every slab: publishing may outlast a lease."""
    memory_rows: int = MEMORY_ROWS
    samples: dict[str, Lookup] = field(default_factory=dict)

    def batches(self) -> Iterator[PublishBatch]:
        """All entities, sorted by bucket, spooled to disk if they are many."""
        passes = max(1, -(-self.meta.published // PASS_ROWS))
        stride = max(1, self.meta.published // SAMPLES)
        seen = 0
        with Spool(self.content.run_dir / "spool", passes, memory_rows=self.memory_rows) as spool:
            for part in self.content.tables():
                packed = self._packed(part.filter(pc.is_valid(part["entity_id"])))
                self._sample(packed, seen, stride)
                seen += packed.num_rows
                buckets = packed["bucket"].to_numpy().astype(np.uint64)
                spool.add(packed, (buckets * passes // self.meta.buckets).astype(np.uint32))
                self.renew()
            for table in spool.tables():
                yield from self._slabs(table)

    def _slabs(self, table: pa.Table) -> Iterator[PublishBatch]:
        order = np.argsort(table["bucket"].to_numpy(), kind="stable")
        for start in range(0, len(order), SLAB_ROWS):
            slab = table.take(pa.array(order[start : start + SLAB_ROWS])).combine_chunks()
            ids, buckets, values = (slab[name].combine_chunks() for name in ("id", "bucket", "value"))
            yield PublishBatch(ids=ids, buckets=buckets.to_numpy(), values=values)
            self.renew()

    def _packed(self, part: pa.Table) -> pa.Table:
        names = score_names(self.meta.columns)
        scores = np.column_stack([part[name].fill_null(0).to_numpy() for name in names]).astype(np.float32)
        values = pack_columns(
            scores, scored_at=self.meta.scored_at, codes=_codes(part["code"]), fields=self._fields(part["field"])
        )
        ids = part["entity_id"].combine_chunks()
        return pa.table({"id": ids, "bucket": buckets_of(ids, self.meta.buckets), "value": values})

    def _fields(self, column: pa.ChunkedArray) -> npt.NDArray[np.uint16]:
        places = pc.index_in(column, value_set=pa.array(self.meta.fields, pa.string()))
        numbers: npt.NDArray[np.uint16] = places.fill_null(NO_FIELD).to_numpy().astype(np.uint16)
        return numbers

    def _sample(self, packed: pa.Table, seen: int, stride: int) -> None:
        kept = packed.take(pa.array(np.arange(-seen % stride, packed.num_rows, stride)))
        for entity_id, value in zip(kept["id"].to_pylist(), kept["value"].to_pylist(), strict=True):
            self.samples[entity_id] = unpack(value, len(self.meta.columns), self.meta.fields)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    numbers = np.array([0, *(int(code) for code in Code)], dtype=np.uint8)
    places = pc.index_in(column, value_set=pa.array([code.text for code in Code])).fill_null(-1)
    codes: npt.NDArray[np.uint8] = numbers[places.to_numpy() + 1]
    return codes
