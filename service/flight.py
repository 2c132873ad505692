"""Single flight: what several callers ask for at the same time is computed once.

The work is a task of the server's: the caller who began it may go away, and those who joined him get their answer.
Callers of one turn of the event loop, each with another entity, share one flight: it departs when the turn is over.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared.clock import Clock
from shared.telemetry import StageTimer

R = TypeVar("R")
Key = str | int
"""An entity id; or a number, for what the work does for its first caller only."""

MAX_HELD = 4096
"""The most results that are held for those who did not see them in the store."""


@dataclass(slots=True, kw_only=True, eq=False)
class Flight(Generic[R]):
    """One computation for some entities of one snapshot, under way or done. ``kept``: what may go into the snapshot."""

    snapshot: str | None
    began: float
    stages: StageTimer
    entities: dict[str, None]
    kept: set[str] = field(default_factory=set)
    departed: bool = False
    landed_at: float | None = None
    held: set[str] = field(default_factory=set)
    """Entities whose results are for those, too, who come after the end."""
    task: "asyncio.Task[Mapping[Key, R]]" = field(init=False)
    _waiting: "list[asyncio.Future[None]]" = field(default_factory=list)

    async def results(self) -> Mapping[Key, R]:
        """What came of it, by entity; raises what it raised. Whoever is cancelled meanwhile does not end it."""
        if self.landed_at is None:
            landed = asyncio.get_running_loop().create_future()
            self._waiting.append(landed)
            await landed
        return self.task.result()

    def land(self, now: float) -> None:
        """Tells those who wait."""
        self.landed_at = now
        for landed in self._waiting:
            if not landed.done():
                landed.set_result(None)
        self._waiting.clear()


Work = Callable[[Flight[R]], Coroutine[None, None, Mapping[Key, R]]]


class Flights(Generic[R]):
    """The computations under way, by entity. ``seconds``: the age above which one is not joined any more, and how long
    results are held."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._by_entity: dict[str, Flight[R]] = {}
        self._tasks: set[asyncio.Task[Mapping[Key, R]]] = set()
        self._boarding: Flight[R] | None = None
        self._holding: deque[Flight[R]] = deque()
        self._held = 0

    def find(self, snapshot: str | None, entity_id: str) -> Flight[R] | None:
        """The computation that a question about the entity can join; one that has landed holds its result."""
        flight = self._by_entity.get(entity_id)
        if flight is None or flight.snapshot != snapshot:
            return None
        since = flight.began if flight.landed_at is None else flight.landed_at
        return None if self._clock.now() - since > self._seconds else flight

    def start(self, snapshot: str | None, entities: Iterable[str], work: Work[R]) -> Flight[R]:
        """Begins a computation of its own, in place of one for the same entities that cannot be joined."""
        now = self._clock.now()
        self._let_go(now)
        flight = Flight[R](
            snapshot=snapshot, entities=dict.fromkeys(entities), began=now, stages=StageTimer(self._clock)
        )
        self._by_entity.update(dict.fromkeys(flight.entities, flight))
        flight.task = asyncio.get_running_loop().create_task(self._depart(flight, work))
        self._tasks.add(flight.task)
        flight.task.add_done_callback(lambda task: self._landed(flight, task))
        return flight

    def board(self, snapshot: str | None, entities: Iterable[str], work: Work[R]) -> Flight[R]:
        """As ``start``, together with all who board in this turn of the event loop: they bring the same work."""
        flight = self._boarding
        if flight is None or flight.departed or flight.snapshot != snapshot:
            flight = self._boarding = self.start(snapshot, entities, work)
            return flight
        added = dict.fromkeys(entities, flight)
        flight.entities.update(dict.fromkeys(added))
        self._by_entity.update(added)
        return flight

    def is_current(self, flight: Flight[R], entity_id: str) -> bool:
        """Whether nothing has overtaken what the flight found out about the entity."""
        return self._by_entity.get(entity_id) is flight

    def forget(self, entity_id: str) -> None:
        """The entity's features have changed: whoever asks from now on starts anew."""
        self._by_entity.pop(entity_id, None)

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _depart(self, flight: Flight[R], work: Work[R]) -> Mapping[Key, R]:
        flight.departed = True
        return await work(flight)

    def _landed(self, flight: Flight[R], task: "asyncio.Task[Mapping[Key, R]]") -> None:
        self._tasks.discard(task)
        now = self._clock.now()
        for entity_id in flight.entities.keys() - flight.held:
            self._drop(flight, entity_id)
        if flight.held:
            self._holding.append(flight)
            self._held += len(flight.held)
            self._let_go(now)
        if not task.cancelled():
            task.exception()  # it is told to those who wait; if none does, nobody need be told
        flight.land(now)

    def _let_go(self, now: float) -> None:
        """Of the results that are held, those that are old or too many."""
        while self._holding:
            oldest = self._holding[0]
            if self._held <= MAX_HELD and now - (oldest.landed_at or now) <= self._seconds:
                return
            self._holding.popleft()
            self._held -= len(oldest.held)
            for entity_id in oldest.held:
                self._drop(oldest, entity_id)

    def _drop(self, flight: Flight[R], entity_id: str) -> None:
        if self.is_current(flight, entity_id):
            del self._by_entity[entity_id]
