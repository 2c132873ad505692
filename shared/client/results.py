"""What a service answers, as frozen values. Members that a newer service adds are passed over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self

from shared.client.problems import INSTANCE, TYPE, Problem

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score and where it comes from.

    ``scores`` and ``prediction`` are by name, as ``GET /model`` lists them; a score is the shortest decimal of its
    float32. ``model_version`` computed it. ``snapshot`` is None for a score computed for this answer, ``data_as_of``
    where it is not known of when the features are, ``entity_id`` for features that were sent without one, and
    ``parity`` where the service has no snapshot to compare itself with.
    """

    entity_id: str | None
    scores: dict[str, float]
    prediction: dict[str, bool | str | list[str]]
    model: str
    model_version: str
    snapshot: str | None
    source: Literal["cache", "online"]
    scored_at: datetime
    data_as_of: datetime | None
    age_seconds: int
    parity: Literal["exact", "tolerance"] | None

    @classmethod
    def parse(cls, body: JsonObject) -> Self:
        """KeyError, TypeError or ValueError where the body is not a score."""
        return cls(
            entity_id=body["entity_id"],
            scores={name: float(score) for name, score in body["scores"].items()},
            prediction=body["prediction"],
            model=body["model"],
            model_version=body["model_version"],
            snapshot=body["snapshot"],
            source=body["source"],
            scored_at=datetime.fromisoformat(body["scored_at"]),
            data_as_of=_instant(body["data_as_of"]),
            age_seconds=body["age_seconds"],
            parity=body["parity"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """How a service is; true where it answers score calls, even if its store does not answer it (``degraded``)."""

    status: Literal["ready", "degraded", "loading", "failed"]
    reason: str | None

    @classmethod
    def parse(cls, body: JsonObject) -> Self:
        return cls(status=body["status"], reason=body.get("reason"))

    def __bool__(self) -> bool:
        return self.status in {"ready", "degraded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The contract of the model that a service has loaded: ``features`` in the schema's order, each with its rules."""

    model: str
    model_version: str
    bundle_digest: str
    golden_digest: str
    entity: str
    features: Sequence[JsonObject]
    inputs: Sequence[JsonObject]
    outputs: Sequence[JsonObject]
    engine: str
    tile: JsonObject
    device: str
    torch_version: str
    created_at: datetime
    code_revision: str | None

    @classmethod
    def parse(cls, body: JsonObject) -> Self:
        return cls(
            model=body["model"],
            model_version=body["model_version"],
            bundle_digest=body["bundle_digest"],
            golden_digest=body["golden_digest"],
            entity=body["entity"],
            features=tuple(body["features"]),
            inputs=tuple(body["inputs"]),
            outputs=tuple(body["outputs"]),
            engine=body["engine"],
            tile=body["tile"],
            device=body["device"],
            torch_version=body["torch_version"],
            created_at=datetime.fromisoformat(body["created_at"]),
            code_revision=body["code_revision"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot that is in the store: ``state`` is writing, ready, held by a gate, or retiring."""

    snapshot: str
    model_version: str
    state: str
    active: bool
    published: int
    input_rows: int
    scored: int
    rejected: int
    duplicate: int
    scored_at: datetime
    data_as_of: datetime | None
    age_seconds: int
    created_by: str
    bundle_digest: str
    parity: Literal["exact", "tolerance"]

    @classmethod
    def parse(cls, body: JsonObject) -> Self:
        return cls(
            snapshot=body["snapshot"],
            model_version=body["model_version"],
            state=body["state"],
            active=body["active"],
            published=body["published"],
            input_rows=body["input_rows"],
            scored=body["scored"],
            rejected=body["rejected"],
            duplicate=body["duplicate"],
            scored_at=datetime.fromisoformat(body["scored_at"]),
            data_as_of=_instant(body["data_as_of"]),
            age_seconds=body["age_seconds"],
            created_by=body["created_by"],
            bundle_digest=body["bundle_digest"],
            parity=body["parity"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """The snapshots in the store, newest first; ``active`` is the id of the one that is served, if one is."""

    model: str
    active: str | None
    snapshots: Sequence[Snapshot]

    @classmethod
    def parse(cls, body: JsonObject) -> Self:
        return cls(
            model=body["model"],
            active=body["active"],
            snapshots=tuple(Snapshot.parse(one) for one in body["snapshots"]),
        )


def parse_problem(body: JsonObject, *, status: int, error_id: str | None, retry_after: float | None = None) -> Problem:
    """A problem document; KeyError, TypeError or ValueError where the body is none of this service's."""
    kind = body["type"]
    if not kind.startswith(TYPE):
        raise ValueError(kind)
    return Problem(
        status=status,
        type=kind.removeprefix(TYPE),
        title=body["title"],
        detail=body["detail"],
        code=body.get("code"),
        field=body.get("field"),
        error_id=body["instance"].removeprefix(INSTANCE) if "instance" in body else error_id,
        retry_after=retry_after,
    )


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
