"""One score as the caller reads it. The only place that turns a result into the words of the API."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, Self

from service.headers import CacheStatus
from service.lookup import Hit
from shared.answer import named_scores, predictions
from shared.bundle import Bundle
from shared.schema import Output
from shared.snapshot import SnapshotMeta

Source = Literal["cache", "file", "online"]
Parity = Literal["exact", "tolerance"]
SNAPSHOT_FILE = "snapshot-file"
"""The detail of an answer from the snapshot's file, while the store cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A score and where it comes from. ``model_version`` is the version that computed the number.

    ``snapshot`` is None for a score computed for this answer: it belongs to no snapshot. ``data_as_of`` is None where
    nothing says of when the features are.
    """

    entity_id: str | None
    scores: Sequence[float]
    outputs: Sequence[Output]
    model: str
    model_version: str
    snapshot: str | None
    source: Source
    scored_at: int
    data_as_of: int | None
    parity: Parity | None
    cache: CacheStatus

    @classmethod
    def from_hit(
        cls, entity_id: str, hit: Hit, meta: SnapshotMeta, golden_digest: str, *, detail: str | None = None
    ) -> Self:
        """A snapshot's score, told in the words of that snapshot, whatever bundle this process has loaded."""
        return cls(
            entity_id=entity_id,
            scores=hit.scores,
            outputs=meta.outputs,
            model=meta.model,
            model_version=meta.model_version,
            snapshot=meta.snapshot,
            source=hit.source,
            scored_at=hit.scored_at,
            data_as_of=None if hit.online else meta.data_as_of,
            parity=parity_with(meta, golden_digest),
            cache=CacheStatus(detail=_detail(hit, detail)),
        )

    @classmethod
    def from_online(
        cls,
        entity_id: str | None,
        scores: Sequence[float],
        bundle: Bundle,
        *,
        scored_at: int,
        parity: Parity | None,
        cache: CacheStatus,
    ) -> Self:
        """A score that this process computed just now, with its own bundle."""
        return cls(
            entity_id=entity_id,
            scores=scores,
            outputs=bundle.schema.outputs,
            model=bundle.name,
            model_version=bundle.version,
            snapshot=None,
            source="online",
            scored_at=scored_at,
            data_as_of=None,
            parity=parity,
            cache=cache,
        )

    def age(self, now: float) -> int:
        """Seconds since it was scored."""
        return max(0, int(now) - self.scored_at)

    def body(self, now: float) -> dict[str, object]:
        """The response body, keys in their documented order."""
        return {
            "entity_id": self.entity_id,
            "scores": named_scores(self.outputs, self.scores),
            "prediction": predictions(self.outputs, self.scores),
            "model": self.model,
            "model_version": self.model_version,
            "snapshot": self.snapshot,
            "source": self.source,
            "scored_at": instant(self.scored_at),
            "data_as_of": instant(self.data_as_of),
            "age_seconds": self.age(now),
            "parity": self.parity,
        }


def _detail(hit: Hit, detail: str | None) -> str | None:
    """RFC 9211 has one word for it: of a score that is from the file, where it is from comes first."""
    if hit.source == "cache":
        return detail
    return SNAPSHOT_FILE if detail is None else f"{SNAPSHOT_FILE}-{detail}"


def parity_with(meta: SnapshotMeta, golden_digest: str) -> Parity:
    """Whether this process computes the same bits as the one that scored the snapshot: proved by the golden rows."""
    return "exact" if meta.golden_digest == golden_digest else "tolerance"


@lru_cache(maxsize=1024)
def instant(seconds: int | None) -> str | None:
    """Epoch seconds as RFC 3339 in UTC: ``2026-11-30T02:00:41Z``. All answers of a snapshot have the same few."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
