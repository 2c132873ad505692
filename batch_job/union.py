"""A run's entities join those of a snapshot: what its metadata says then, without reading all of it.

Counts and histograms are the batch's. An entity whose score is the service's own changes none of them: whether the
batch had it before cannot be told any more, and counting it twice would hold back the next whole snapshot.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batch_job.content import Content
from batch_job.gates import histograms_of
from batch_job.histograms import decile_edges, histograms
from batch_job.parts import SCORED, score_names
from shared.snapshot import Absent, Found, Histogram, KnownRejected, Lookup, Lost, SnapshotMeta, SubsetRun
from shared.store import refusals
from shared.store.interfaces import SnapshotWriter

SUBSETS_KEPT = 20
"""How many runs over a part a snapshot's metadata names."""

_LOOKUP_ROWS = 20_000
_ABSENT, _SCORED, _REJECTED, _ONLINE = range(4)

_Edges = Mapping[str, tuple[float, ...]]


@dataclass(slots=True)
class Union:
    """``added`` entities are new to the snapshot; ``scored`` and ``rejected`` are how its counts of rows change."""

    base: SnapshotMeta
    content: Content
    edges: _Edges
    added: int = 0
    scored: int = 0
    rejected: int = 0
    changes: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    def meta(self, run: SubsetRun) -> SnapshotMeta:
        """The metadata of the snapshot that was joined."""
        base, counts = self.base, self.content.manifest.counts
        scored, rejected = base.scored + self.scored, base.rejected + self.rejected
        duplicate = base.duplicate + counts.duplicate
        moments = (base.data_as_of, self.content.manifest.data_as_of)
        known = [moment for moment in moments if moment is not None]
        return base.model_copy(
            update={
                "published": base.published + self.added,
                "input_rows": scored + rejected + duplicate,
                "scored": scored,
                "rejected": rejected,
                "duplicate": duplicate,
                "data_as_of": min(known) if len(known) == len(moments) else None,
                "histograms": tuple(self._histogram(column) for column in base.columns),
                "subsets": (*base.subsets, run)[-SUBSETS_KEPT:],
            }
        )

    def _histogram(self, column: str) -> Histogram:
        edges = self.edges.get(column, ())
        before = histograms_of(self.base).get(column)
        counts = np.zeros(len(edges) + 1, np.int64) if before is None else np.array(before.counts, np.int64)
        counts = np.maximum(counts + self.changes.get(column, 0), 0)
        return Histogram(edges=edges, counts=tuple(counts.tolist()))

    def see(self, rows: pa.Table, found: list[Lookup]) -> None:
        """Takes rows of the run with what the snapshot holds for their ids."""
        before = np.array([_kind(one, self.base) for one in found], np.uint8)
        counts = before != _ONLINE
        now_scored = pc.equal(rows["status"], SCORED).to_numpy()
        self.added += int((before == _ABSENT).sum())
        self.scored += int((now_scored & counts).sum()) - int((before == _SCORED).sum())
        self.rejected += int((~now_scored & counts).sum()) - int((before == _REJECTED).sum())
        self._count(rows.filter(pa.array(now_scored & counts)), 1)
        self._count(self._scores([one for one in found if isinstance(one, Found) and not one.online]), -1)

    def _count(self, rows: pa.Table, sign: int) -> None:
        for column, histogram in histograms([rows], self.base.columns, self.edges).items():
            self.changes[column] = self.changes.get(column, 0) + sign * np.array(histogram.counts, np.int64)

    def _scores(self, found: list[Found]) -> pa.Table:
        names = score_names(self.base.columns)
        matrix = np.array([one.scores for one in found], np.float32).reshape(len(found), len(names))
        return pa.table({name: matrix[:, place] for place, name in enumerate(names)})


def union(base: SnapshotMeta, content: Content, writer: SnapshotWriter) -> Union:
    """Looks up the run's entities in the snapshot; StoreCorrupt if the store lost a part of it."""
    before = histograms_of(base)
    edges = {column: histogram.edges for column, histogram in before.items()}
    if len(before) < len(base.columns):  # columns without a score until now
        edges = decile_edges(content.scores(), base.columns, content.manifest.counts.scored) | edges
    joined = Union(base, content, edges)
    for rows in _slices(content):
        named = rows.filter(pc.is_valid(rows["entity_id"]))
        joined.rejected += len(rows) - len(named)
        joined.see(named, writer.read(base, named["entity_id"].to_pylist()))
    return joined


def _slices(content: Content) -> Iterator[pa.Table]:
    for part in content.tables():
        for start in range(0, len(part), _LOOKUP_ROWS):
            yield part.slice(start, _LOOKUP_ROWS)


def _kind(found: Lookup, base: SnapshotMeta) -> int:
    match found:
        case Absent():
            return _ABSENT
        case Found(online=online):
            return _ONLINE if online else _SCORED
        case KnownRejected():
            return _REJECTED
        case Lost():
            raise refusals.bucket_gone(base.snapshot)
