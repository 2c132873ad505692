"""Snapshots of real scores, published straight through the store's writer."""

from collections.abc import Mapping, Sequence

import numpy as np
from support.snapshots import promote, publish_batch, snapshot_meta

from shared.codes import Code, Rejection
from shared.layout import buckets_for
from shared.scorer import Scorer, score_each
from shared.snapshot import SnapshotMeta, SnapshotState
from shared.store.interfaces import Store

Row = Mapping[str, object]


def publish(
    store: Store,
    scorer: Scorer,
    rows: Mapping[str, Row],
    *,
    snapshot: str | None = None,
    active: bool = True,
    **changes: object,
) -> SnapshotMeta:
    """Scores the rows as the batch job would, and publishes them; ``changes`` go into the snapshot's metadata."""
    scored = score_each(scorer, scorer.encoder.rows(list(rows.values())))
    ids = list(rows)
    scores = {ids[place]: list(map(float, line)) for place, line in zip(scored.rows, scored.scores, strict=True)}
    meta = meta_of(scorer, snapshot or f"{scorer.bundle.version}-A", len(rows), **changes)
    rejected = {ids[one.row]: (one.code, _place(meta, one)) for one in scored.rejections}
    write(store, meta, scores, rejected)
    if active:
        promote(store, meta.snapshot)
    return meta


def meta_of(scorer: Scorer, snapshot: str, entities: int, **changes: object) -> SnapshotMeta:
    """The metadata that a run of the scorer's bundle would give its snapshot."""
    bundle = scorer.bundle
    given: dict[str, object] = {
        "model": bundle.name,
        "model_version": bundle.version,
        "bundle_digest": bundle.digest,
        "golden_digest": scorer.golden_digest,
        "outputs": bundle.schema.outputs,
        "fields": tuple(feature.name for feature in bundle.schema.features),
        "buckets": buckets_for(entities),
    }
    return snapshot_meta(snapshot, entities=entities, **(given | changes))


def write(
    store: Store,
    meta: SnapshotMeta,
    scores: Mapping[str, Sequence[float]],
    rejected: Mapping[str, tuple[Code, int | None]] | None = None,
) -> None:
    """Writes the snapshot whole and marks it as ready."""
    store.writer.begin(meta)
    store.writer.fill(meta, [publish_batch(meta, scores, rejected)])
    store.control.mark(meta.snapshot, SnapshotState.READY)


def bits(score: float) -> int:
    """The 32 bits of a score as printed: two scores are the same exactly when these are."""
    return int(np.float32(score).view(np.uint32))


def _place(meta: SnapshotMeta, rejection: Rejection) -> int | None:
    return None if rejection.field is None else meta.fields.index(rejection.field)
