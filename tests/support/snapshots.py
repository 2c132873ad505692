"""Small snapshots for tests of the store and of those who use it."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from shared.codes import Code
from shared.layout import NO_FIELD, buckets_for, buckets_of, pack_columns
from shared.schema import Binary
from shared.snapshot import Flip, Lease, SnapshotMeta, SnapshotState
from shared.store.interfaces import PublishBatch, Store

FIELDS = ("visits", "returns", "basket")
SCORED_AT = 1_700_000_000


def snapshot_meta(snapshot: str = "1-A", *, entities: int = 3, **changes: object) -> SnapshotMeta:
    """The metadata of a snapshot of one score, ``buys``. The version is what stands before the dash."""
    given: dict[str, object] = {
        "snapshot": snapshot,
        "model": "churn",
        "model_version": snapshot.partition("-")[0],
        "bundle_digest": "b" * 64,
        "golden_digest": "g" * 64,
        "outputs": (Binary("buys"),),
        "fields": FIELDS,
        "buckets": buckets_for(entities),
        "published": entities,
        "input_rows": entities,
        "scored": entities,
        "rejected": 0,
        "duplicate": 0,
        "scored_at": SCORED_AT,
        "data_as_of": None,
        "run_key": f"run of {snapshot}",
        "created_by": "test",
    }
    return SnapshotMeta.model_validate(given | changes)


def publish_batch(
    meta: SnapshotMeta,
    scores: Mapping[str, float | Sequence[float]],
    rejected: Mapping[str, tuple[Code, int | None]] | None = None,
) -> PublishBatch:
    """The entities with their scores, and those that were rejected with the code and the position of the field."""
    rejected = rejected or {}
    ids = pa.array([*scores, *rejected], pa.string())
    columns = len(meta.columns)
    matrix = np.zeros((len(ids), columns), dtype=np.float32)
    matrix[: len(scores)] = np.array(list(scores.values()), dtype=np.float32).reshape(len(scores), columns)
    codes = np.array([0] * len(scores) + [int(code) for code, _ in rejected.values()], dtype=np.uint8)
    blamed = [NO_FIELD if field is None else field for _, field in rejected.values()]
    fields = np.array([NO_FIELD] * len(scores) + blamed, dtype=np.uint16)
    values = pack_columns(matrix, scored_at=meta.scored_at, codes=codes, fields=fields)
    buckets = buckets_of(ids, meta.buckets)
    order = np.argsort(buckets, kind="stable")
    return PublishBatch(ids=ids.take(pa.array(order)), buckets=buckets[order], values=values.take(pa.array(order)))


def load(store: Store, meta: SnapshotMeta, scores: Mapping[str, float | Sequence[float]]) -> SnapshotMeta:
    """Writes the snapshot and marks it as ready."""
    store.writer.begin(meta)
    store.writer.fill(meta, [publish_batch(meta, scores)])
    store.control.mark(meta.snapshot, SnapshotState.READY)
    return meta


def promote(store: Store, snapshot: str) -> Flip:
    """Flips the pointer under a lease that is then given back."""
    lease = store.leases.acquire("test", 30)
    try:
        return store.control.promote(snapshot, lease, by="test")
    finally:
        store.leases.release(lease)


def rollback(store: Store) -> Flip:
    lease: Lease = store.leases.acquire("test", 30)
    try:
        return store.control.rollback(lease, by="test")
    finally:
        store.leases.release(lease)
