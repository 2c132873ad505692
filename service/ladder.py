"""What is done for entities of which the store cannot tell: the snapshot's own file says what it has of them.

    store -> file -> online -> refusal

What the file says becomes an outcome like any other, so that age, wishes, tags and refusals are those of the cache. An
entity that it does not have may be in the store all the same; only where there is no store is it unknown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from service.lookup import Hit, Miss, Outcome, RejectedInBatch, Stale, StoreDown, View, outcome
from service.refresh import AgeLimit
from service.shelf import Shelf
from shared.clock import Clock
from shared.metrics import Metrics
from shared.snapshot import Active, Lookup, SnapshotMeta


class Ladder:
    """The rung below the store. ``alone``: there is no store, and the file has all that there is."""

    def __init__(
        self, shelf: Shelf, clock: Clock, stopwatch: Clock, metrics: Metrics, limit: AgeLimit | None, *, alone: bool
    ) -> None:
        self._shelf = shelf
        self._clock = clock
        self._stopwatch = stopwatch
        self._metrics = metrics
        self._limit = limit
        self._alone = alone

    async def below(self, view: View) -> View:
        """The same view, with what the file says in place of what the store could not."""
        undecided = [entity for entity, one in view.outcomes.items() if _is_undecided(one, view.active)]
        for one in view.outcomes.values():
            if isinstance(one, StoreDown) and not self._alone:
                self._metrics.rung_failed("store", one.word)
        if not undecided:
            return view
        known = view.active is not None and not self._alone
        wanted = view.active.meta.snapshot if known and view.active else None
        meta = self._shelf.stands_for(wanted)
        found = None if meta is None else await self._look_up(meta, undecided)
        if found is None and (now := self._shelf.stands_for(wanted)) is not None and now is not meta:
            meta, found = now, await self._look_up(now, undecided)  # another file was opened meanwhile
        if meta is None or found is None:
            self._metrics.rung_failed("file", "missing" if meta is None else "late", len(undecided))
            return view
        told = {entity: self._told(one, view.outcomes[entity]) for entity, one in zip(undecided, found, strict=True)}
        return View(active=self._active(view, meta, told.values()), outcomes={**view.outcomes, **told})

    async def _look_up(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup] | None:
        start = self._stopwatch.now()
        try:
            return await self._shelf.look_up(meta, ids)
        finally:
            self._metrics.stage("file", self._stopwatch.now() - start)

    def _told(self, found: Lookup, before: Outcome) -> Outcome:
        match outcome(found):
            case Hit() as hit if self._limit is not None and self._limit.is_over(self._clock.now() - hit.scored_at):
                return Stale()
            case Hit() as hit:
                return replace(hit, source="file")
            case RejectedInBatch() as rejected:
                return rejected
            case StoreDown():
                self._metrics.rung_failed("file", "lost")
                return before
            case Miss():
                return Miss() if self._alone else before

    def _active(self, view: View, meta: SnapshotMeta, told: Iterable[Outcome]) -> Active | None:
        """The snapshot that the answers are from. One that nobody knew is named once something is told of it."""
        if view.active is not None and not self._alone:
            return view.active
        return Active(meta=meta, epoch=0) if any(not isinstance(one, StoreDown) for one in told) else view.active


def _is_undecided(one: Outcome, active: Active | None) -> bool:
    """A store without a pointer was never written, or has forgotten it: it does not say that an entity is unknown."""
    return isinstance(one, StoreDown) or (active is None and isinstance(one, Miss))
