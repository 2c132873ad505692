"""What a service answers, as frozen values. Members that a newer service adds are passed over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, Self

from shared.client.freshness import CacheStatus
from shared.client.problems import INSTANCE, TYPE, Problem

JsonObject = Mapping[str, Any]


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


_READ: dict[Any, Callable[[Any], Any]] = {
    datetime: datetime.fromisoformat,
    datetime | None: _instant,
    Sequence[JsonObject]: tuple,
}
"""How a member is read that is not of JSON's own types."""
_BESIDE = {"beside": True}
"""Marks a field that is not in the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """A body whose members are the fields, by the same names."""

    @classmethod
    def parse(cls, body: JsonObject) -> Self:
        """KeyError, TypeError or ValueError where the body is not of this form."""
        told = {one.name: one.type for one in fields(cls) if not one.metadata}
        return cls(**{name: _read(kind, body[name]) for name, kind in told.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(_Result):
    """A score and where it comes from.

    ``scores`` and ``prediction`` are by name, as ``GET /model`` lists them; a score is the shortest decimal of its
    float32. ``model_version`` computed it. ``source``: the service's store, the snapshot's own file while that does
    not answer, or computed for this answer. ``snapshot`` is None for a score computed for this answer, ``data_as_of``
    where it is not known of when the features are, ``entity_id`` for features that were sent without one, and
    ``parity`` where the service has no snapshot to compare itself with. ``cache_status`` and ``etag`` are of a score
    that was asked for alone, and None in a list.
    """

    entity_id: str | None
    scores: dict[str, float]
    prediction: dict[str, bool | str | list[str]]
    model: str
    model_version: str
    snapshot: str | None
    source: Literal["cache", "file", "online"]
    scored_at: datetime
    data_as_of: datetime | None
    age_seconds: int
    parity: Literal["exact", "tolerance"] | None
    cache_status: CacheStatus | None = field(default=None, metadata=_BESIDE)
    etag: str | None = field(default=None, metadata=_BESIDE)


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
class Model(_Result):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(_Result):
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


def _read(kind: Any, value: Any) -> Any:
    if kind == dict[str, float]:
        return {name: float(number) for name, number in value.items()}
    return _READ[kind](value) if kind in _READ else value
