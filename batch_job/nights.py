"""What a night needs: pure decisions over what the store says. A night is named by the moment at which it was due."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import pairwise
from typing import Protocol

from shared.snapshot import Flip, SnapshotMeta, SnapshotState
from shared.store.history import PROMOTE
from shared.store.interfaces import Store
from shared.ulid import ulid_milliseconds

_PERIODS = 8
_MAX_AGE_PERIODS = 1.5


class Calendar(Protocol):
    """When runs are due."""

    def last(self, now: datetime) -> datetime | None:
        """The latest due moment that is not after ``now``."""
        ...

    def upcoming(self, after: datetime, count: int) -> list[datetime]:
        """The next due moments, in order; fewer if there are no more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The store at one moment: the active snapshot, the flips that led there, what is held, who is at work."""

    active: SnapshotMeta | None
    history: tuple[Flip, ...] = ()
    held: tuple[SnapshotMeta, ...] = ()
    holder: str | None = None

    @property
    def promoted_at(self) -> int | None:
        """When the pointer last went forward."""
        return next((flip.at for flip in self.history if flip.action == PROMOTE), None)


class Standing(Enum):
    """How a night stands."""

    OPEN = "open"
    DONE = "done"
    """A snapshot that was scored since is or was active."""
    HELD = "held"
    """A snapshot that was scored since waits for a person."""


def look(store: Store) -> Sight:
    """Asks the store; StoreError if it does not answer."""
    active = store.catalogue.active()
    listed = store.catalogue.snapshots()
    return Sight(
        active=None if active is None else active.meta,
        history=tuple(store.catalogue.history()),
        held=tuple(row.meta for row in listed if row.state is SnapshotState.HELD),
        holder=store.leases.holder(),
    )


def standing(due: datetime, sight: Sight) -> Standing:
    """Whether the night still needs a run. One that somebody rolled back is done: the schedule does not undo that."""
    since = due.timestamp()
    if sight.active is not None and sight.active.scored_at >= since:
        return Standing.DONE
    if any(_begun(flip.snapshot) >= since for flip in sight.history):
        return Standing.DONE
    if any(meta.scored_at >= since for meta in sight.held):
        return Standing.HELD
    return Standing.OPEN


def longest_period(calendar: Calendar, now: datetime) -> timedelta | None:
    """The longest time between two due moments near to now; None if there is at most one."""
    last = calendar.last(now)
    moments = [*([last] if last is not None else []), *calendar.upcoming(now, _PERIODS)]
    return max(_gaps(moments), default=None)


def max_age(calendar: Calendar, now: datetime, told: float) -> float:
    """The age of the active snapshot in seconds that raises the alarm: as told, or one and a half periods."""
    if told:
        return told
    period = longest_period(calendar, now)
    return float("inf") if period is None else period.total_seconds() * _MAX_AGE_PERIODS


def _gaps(moments: Iterable[datetime]) -> list[timedelta]:
    return [after - before for before, after in pairwise(moments)]


def _begun(snapshot: str) -> float:
    """When the run of a snapshot began, as its name says: ``{version}-{ULID}``."""
    milliseconds = ulid_milliseconds(snapshot.rpartition("-")[2])
    return float("-inf") if milliseconds is None else milliseconds / 1000
