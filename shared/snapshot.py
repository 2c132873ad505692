"""What a snapshot is: its name, its description, its states, and what a look-up in it can find."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict

from shared.codes import Code
from shared.schema import Output

ENTITIES_PER_BUCKET = 48
"""Keeps a bucket below the 128 entries up to which Redis and Valkey store a hash as one compact listpack."""


class SnapshotState(StrEnum):
    """Where a snapshot stands. ``active`` is not a state: the pointer says it."""

    WRITING = "writing"
    READY = "ready"
    HELD = "held"
    RETIRING = "retiring"


class Histogram(BaseModel):
    """The distribution of one score column: ``counts[i]`` scores lie below ``edges[i]``, the last count is the rest."""

    model_config = ConfigDict(frozen=True)

    edges: tuple[float, ...]
    counts: tuple[int, ...]


class SubsetRun(BaseModel):
    """A run over a part of the entities, whose scores joined those of a snapshot that was there.

    ``into`` is ``new`` where they went into a copy of the snapshot ``base``, and ``active`` where they went into
    ``base`` itself; then ``whole`` is false as long as they are being written. ``at`` is epoch seconds, the moment as
    of which they were scored; ``entities`` counts those that the run scored or rejected.
    """

    model_config = ConfigDict(frozen=True)

    run: str
    run_key: str
    base: str
    into: Literal["new", "active"]
    at: int
    by: str
    entities: int
    whole: bool = True


class SnapshotMeta(BaseModel):
    """All that a reader must know to read a snapshot, and a person to judge it.

    ``scored_at`` and ``data_as_of`` are epoch seconds. ``published`` counts the entities in the store (scored and
    known-but-rejected); ``rejected`` counts rejected rows, those without an id included. Where runs over a part of the
    entities went into it (``subsets``), the counts are those of all rows that its entities come from now, and both
    times are the oldest among them: each value carries its own ``scored_at``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    snapshot: str
    model: str
    model_version: str
    bundle_digest: str
    golden_digest: str
    outputs: tuple[Output, ...]
    fields: tuple[str, ...]
    """The schema's feature names: a rejection stores the position of its field in here."""
    buckets: int
    published: int
    input_rows: int
    scored: int
    rejected: int
    duplicate: int
    scored_at: int
    data_as_of: int | None
    run_key: str
    created_by: str
    histograms: tuple[Histogram, ...] = ()
    subsets: tuple[SubsetRun, ...] = ()
    """The last runs over a part of the entities whose scores are in here, the newest last."""

    @property
    def unfinished(self) -> SubsetRun | None:
        """The run that was writing into the snapshot when it ended, or still is."""
        last = self.subsets[-1] if self.subsets else None
        return None if last is None or last.whole else last

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the scores in each value, in order."""
        return tuple(column for output in self.outputs for column in output.columns)

    def to_json(self) -> bytes:
        """The JSON that the store keeps."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """The pointer as it was read: the active snapshot and the fencing epoch that put it there."""

    meta: SnapshotMeta
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One row of the list of snapshots."""

    meta: SnapshotMeta
    state: SnapshotState
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One entry of the history, newest first: the pointer moved to ``snapshot`` at ``at`` (epoch seconds)."""

    snapshot: str
    at: int
    by: str
    action: str
    forced: bool
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The entity has scores: one float32 for each of the snapshot's columns, held exactly in Python floats."""

    scores: tuple[float, ...]
    scored_at: int
    online: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRejected:
    """The batch knew the entity and could not score it."""

    code: Code
    field: str | None
    scored_at: int


@dataclass(frozen=True, slots=True)
class Absent:
    """The snapshot is whole here and does not have the entity."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The store cannot tell: the bucket is gone (evicted, flushed) or its bytes are not ours."""

    reason: str


Lookup = Found | KnownRejected | Absent | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to publish: held by ``holder`` under ``token``, with the fencing epoch that it brought.

    It lapses ``seconds`` after it was acquired or last renewed.
    """

    token: str
    holder: str
    epoch: int
    seconds: float = 30
