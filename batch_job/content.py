"""What a run's parts hold, as the store wants it: packed values, sorted by bucket, in bounded slabs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batch_job.manifest import RunManifest
from batch_job.parts import part_digest, read_part, rows_with_id, score_names
from batch_job.pipeline import ahead
from batch_job.spool import Spool, sorting, taken_rows
from shared.codes import Code
from shared.errors import RunError
from shared.layout import NO_FIELD, buckets_of, pack_columns, unpack
from shared.snapshot import Lookup, SnapshotMeta
from shared.store.interfaces import PublishBatch

PASS_ROWS = 250_000
"""Rows that are sorted at once. Several tables of so many are in memory."""

SLAB_ROWS = 100_000
SAMPLES = 200

_WORDS = ("code", "field")
_CODES = {code.text: int(code) for code in Code}


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

    def values(self) -> Iterator[pa.Table]:
        """The same, only what the store will hold."""
        names = ["entity_id", *_WORDS, *score_names(self.manifest.columns)]
        return (read_part(path, names, coded=_WORDS) for path in self.manifest.part_paths(self.run_dir))

    def published(self) -> int:
        """How many entities the store will hold: all rows that have an id."""
        return sum(map(rows_with_id, self.manifest.part_paths(self.run_dir)))


@dataclass(slots=True)
class Slabs:
    """The entities of a snapshot on their way to the store. ``samples``, once all were given: what must come back."""

    content: Content
    meta: SnapshotMeta
    renew: Callable[[], None]
    """Called at least once for every part and every slab: publishing may outlast a lease."""
    memory_rows: int = PASS_ROWS
    samples: dict[str, Lookup] = field(default_factory=dict)

    def batches(self) -> Iterator[PublishBatch]:
        """All entities, sorted by bucket, spooled to disk if they are many."""
        passes = max(1, -(-self.meta.published // PASS_ROWS))
        stride = max(1, self.meta.published // SAMPLES)
        seen = 0
        with Spool(self.content.run_dir / "spool", passes, memory_rows=self.memory_rows) as spool:
            with ahead(map(self._packed, self.content.values())) as parts:
                for packed in parts:
                    self._sample(packed, seen, stride)
                    seen += packed.num_rows
                    buckets = packed["bucket"].to_numpy().astype(np.uint64)
                    spool.add(packed, (buckets * passes // self.meta.buckets).astype(np.uint32))
                    self.renew()
            for table in spool.tables():
                for batch in sorted_slabs(table):
                    yield batch
                    self.renew()

    def _packed(self, part: pa.Table) -> pa.Table:
        if part["entity_id"].null_count:
            part = part.filter(pc.is_valid(part["entity_id"]))
        names = score_names(self.meta.columns)
        scores = np.column_stack([part[name].fill_null(0).to_numpy() for name in names])
        values = pack_columns(
            scores,
            scored_at=self.meta.scored_at,
            codes=_numbers(part["code"], _CODES, 0).astype(np.uint8),
            fields=_numbers(part["field"], self._fields, NO_FIELD).astype(np.uint16),
        )
        ids = part["entity_id"].combine_chunks()
        return pa.table({"id": ids, "bucket": buckets_of(ids, self.meta.buckets), "value": values})

    @property
    def _fields(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.meta.fields)}

    def _sample(self, packed: pa.Table, seen: int, stride: int) -> None:
        kept = packed.take(pa.array(np.arange(-seen % stride, packed.num_rows, stride)))
        for entity_id, value in zip(kept["id"].to_pylist(), kept["value"].to_pylist(), strict=True):
            self.samples[entity_id] = unpack(value, len(self.meta.columns), self.meta.fields)


def sorted_slabs(table: pa.Table) -> Iterator[PublishBatch]:
    """The rows of a table (id, bucket, value), sorted by bucket, a bounded number at a time."""
    table = table.combine_chunks()
    order = sorting(table["bucket"].to_numpy())
    for start in range(0, len(order), SLAB_ROWS):
        slab = taken_rows(table, order[start : start + SLAB_ROWS])
        ids, buckets, values = (slab[name].chunk(0) for name in ("id", "bucket", "value"))
        yield PublishBatch(ids=ids, buckets=buckets.to_numpy(), values=values)


def _numbers(column: pa.ChunkedArray, known: Mapping[str, int], other: int) -> npt.NDArray[np.int64]:
    """The number of each word of a column of dictionaries; ``other`` for none, and for a word that is not known."""
    coded = column.unify_dictionaries().combine_chunks()
    words = np.array([*(known.get(word, other) for word in coded.dictionary.to_pylist()), other], np.int64)
    numbers: npt.NDArray[np.int64] = words[coded.indices.fill_null(len(words) - 1).to_numpy()]
    return numbers
