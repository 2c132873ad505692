"""What the active snapshot says about entities: a closed union, so that an outage cannot pass for a miss."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, assert_never

from service.pointer import Pointer
from service.refresh import AgeLimit
from shared.clock import Clock
from shared.codes import Code
from shared.errors import StoreError
from shared.snapshot import Absent, Active, Found, KnownRejected, Lookup, Lost
from shared.store.interfaces import SnapshotReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """The snapshot has the entity's scores. ``due``: they are served still, and are to be renewed meanwhile.

    ``source``: whether the store said so, or the snapshot's file in its place.
    """

    scores: tuple[float, ...]
    scored_at: int
    online: bool
    due: bool = False
    source: Literal["cache", "file"] = "cache"

    @property
    def word(self) -> str:
        """For metrics."""
        return "hit" if self.source == "cache" else self.source


@dataclass(frozen=True, slots=True)
class Stale:
    """The snapshot has the entity's scores, and they are older than any score may be that is served."""

    word: ClassVar[str] = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedInBatch:
    """The batch knew the entity and could not score it."""

    word: ClassVar[str] = "rejected"
    code: Code
    field: str | None
    scored_at: int


@dataclass(frozen=True, slots=True)
class Miss:
    """The snapshot is whole and does not have the entity, or no snapshot was ever promoted."""

    word: ClassVar[str] = "absent"


@dataclass(frozen=True, slots=True)
class StoreDown:
    """The store cannot tell: it does not answer (``down``), or the entity's bucket or value is ``lost``."""

    word: Literal["down", "lost"]


Outcome = Hit | Stale | RejectedInBatch | Miss | StoreDown
"""Each has its ``word`` for metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One look at one snapshot: ``outcomes`` has every entity that was asked for, and all are from ``active``."""

    active: Active | None
    outcomes: dict[str, Outcome]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found of one entity in ``active`` already, or how the look-up failed."""

    active: Active
    found: Lookup | StoreError


class Cache:
    """Looks entities up in the active snapshot. ``limit``: the age above which a score is ``Stale``, if any.

    ``below``: what is asked for those of which the store cannot tell.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        pointer: Pointer,
        clock: Clock,
        limit: AgeLimit | None = None,
        below: Callable[[View], Awaitable[View]] | None = None,
    ) -> None:
        self._reader = reader
        self._pointer = pointer
        self._clock = clock
        self._limit = limit
        self._below = below

    async def look_up(self, ids: Sequence[str], seen: Seen | None = None) -> View:
        """Every id in one snapshot, by what stands below the store where that cannot tell."""
        view = await self._look_up(ids, seen)
        return view if self._below is None or _is_settled(view) else await self._below(view)

    async def _look_up(self, ids: Sequence[str], seen: Seen | None) -> View:
        """Every id in one snapshot, in one round trip.

        What is not there may have moved: the pointer is read once more, and if it did, all ids are looked up again. So
        a process that has not seen the flip yet does not call an entity unknown because its snapshot was retired.
        ``seen``: the first look at the only id, if it was made already.
        """
        active = self._pointer.active
        if not ids:
            return View(active=active, outcomes={})
        if seen is not None:
            active = seen.active
        try:
            view = await self._view(active, ids) if seen is None else self._viewed(seen, ids)
            if _is_settled(view):
                return view
            moved = await self._refreshed()
            return view if moved is None or _same(active, moved) else await self._view(moved, ids)
        except StoreError:
            return View(active=self._pointer.active, outcomes=dict.fromkeys(ids, StoreDown("down")))

    async def _view(self, active: Active | None, ids: Sequence[str]) -> View:
        if active is None:
            return View(active=None, outcomes=dict.fromkeys(ids, Miss()))
        return self._told(active, ids, await self._reader.lookup(active.meta, ids))

    def _viewed(self, seen: Seen, ids: Sequence[str]) -> View:
        if isinstance(seen.found, StoreError):
            raise seen.found
        return self._told(seen.active, ids, [seen.found])

    def _told(self, active: Active, ids: Sequence[str], found: Sequence[Lookup]) -> View:
        outcomes = {entity: self._aged(entity, outcome(one)) for entity, one in zip(ids, found, strict=True)}
        return View(active=active, outcomes=outcomes)

    def _aged(self, entity: str, one: Outcome) -> Outcome:
        if self._limit is None or not isinstance(one, Hit):
            return one
        age = self._clock.now() - one.scored_at
        if self._limit.is_over(age):
            return Stale()
        return replace(one, due=True) if self._limit.is_due(entity, age) else one

    async def _refreshed(self) -> Active | None:
        """The pointer as it is now, or as it was last read: what was found in that snapshot stands."""
        try:
            return await self._pointer.refresh_together()
        except StoreError:
            if not self._pointer.known:
                raise
            return self._pointer.active


def outcome(found: Lookup) -> Hit | RejectedInBatch | Miss | StoreDown:
    """What a look-up in a snapshot means for a request."""
    match found:
        case Found(scores=scores, scored_at=scored_at, online=online):
            return Hit(scores=scores, scored_at=scored_at, online=online)
        case KnownRejected(code=code, field=field, scored_at=scored_at):
            return RejectedInBatch(code=code, field=field, scored_at=scored_at)
        case Absent():
            return Miss()
        case Lost():
            return StoreDown("lost")
        case _:
            assert_never(found)


def _is_settled(view: View) -> bool:
    return view.active is not None and not any(isinstance(one, Miss | StoreDown) for one in view.outcomes.values())


def _same(before: Active | None, now: Active) -> bool:
    return before is not None and before.meta.snapshot == now.meta.snapshot
