"""Single flight: what several callers ask for at the same time is computed once.

The work is a task of the server's: the caller who began it may go away, and those who joined him get their answer.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared.clock import Clock

R = TypeVar("R")
Key = str | int
"""An entity id; or a number, for what the work does for its first caller only."""


@dataclass(slots=True, kw_only=True, eq=False)
class Flight(Generic[R]):
    """One computation for some entities of one snapshot, under way or just done."""

    snapshot: str | None
    entities: tuple[str, ...]
    began: float
    task: "asyncio.Task[Mapping[Key, R]]" = field(init=False)

    async def results(self) -> Mapping[Key, R]:
        """What came of it, by entity; raises what it raised. Whoever is cancelled meanwhile does not end it."""
        await asyncio.wait({self.task})
        return self.task.result()


Work = Callable[[Flight[R]], Coroutine[None, None, Mapping[Key, R]]]


class Flights(Generic[R]):
    """The computations under way, by entity. ``seconds``: the age above which one is not joined any more."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._by_entity: dict[str, Flight[R]] = {}
        self._tasks: set[asyncio.Task[Mapping[Key, R]]] = set()

    def find(self, snapshot: str | None, entity_id: str) -> Flight[R] | None:
        """The computation that a question about the entity can join."""
        flight = self._by_entity.get(entity_id)
        if flight is None or flight.snapshot != snapshot or self._clock.now() - flight.began > self._seconds:
            return None
        return flight

    def start(self, snapshot: str | None, entities: Iterable[str], work: Work[R]) -> Flight[R]:
        """Begins the computation, in place of one for the same entities that cannot be joined."""
        flight = Flight[R](snapshot=snapshot, entities=tuple(entities), began=self._clock.now())
        self._by_entity.update(dict.fromkeys(flight.entities, flight))
        flight.task = asyncio.get_running_loop().create_task(work(flight))
        self._tasks.add(flight.task)
        flight.task.add_done_callback(lambda task: self._landed(flight, task))
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

    def _landed(self, flight: Flight[R], task: "asyncio.Task[Mapping[Key, R]]") -> None:
        self._tasks.discard(task)
        for entity_id in flight.entities:
            if self.is_current(flight, entity_id):
                del self._by_entity[entity_id]
        if not task.cancelled():
            task.exception()  # it was told to those who waited; if none did, nobody need be told
