import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pytest
from support.polling import eventually
from support.publish import publish
from support.services import opener, service_settings

from service.app import Application, create_app
from service.items import Ask
from service.lane import FastLane
from service.online_answers import Missed, Posted, Sent
from service.runtime import Dependencies, Live
from service.together import MOST_TOGETHER, Together
from shared.encode import Encoded
from shared.errors import StoreDown
from shared.payload import payload_of
from shared.scorer import Scorer
from shared.snapshot import Active
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}
BAD = {"visits": "x"}


@dataclass(eq=False)
class Caller:
    """A request: for an entity that ``active`` does not have, or with a row."""

    active: Active
    missed: Missed
    row: Posted | None = None
    sent: list[Sent] = field(default_factory=list)
    told: list[Sent] = field(default_factory=list)
    left: int = 0

    def posted(self) -> Posted | None:
        return self.row

    def send(self, sent: Sent) -> None:
        self.sent.append(sent)

    def tell(self, sent: Sent) -> None:
        assert self.sent == [sent], "what is told of was sent"
        self.told.append(sent)

    def leave(self) -> None:
        self.left += 1

    @property
    def is_done(self) -> bool:
        return bool(self.told) or self.left > 0

    @property
    def body(self) -> Any:
        return orjson.loads(self.sent[0].body)


@dataclass(frozen=True)
class Room:
    """A live service with a snapshot, and what scores for its callers together."""

    together: Together
    live: Live

    def missing(self, *entities: str) -> list[Caller]:
        """Callers for entities that the snapshot does not have, all of one turn."""
        active = self.live.pointer.active
        assert active is not None
        callers = [Caller(active, Missed(one, orjson.dumps(one), 0.0, 0.0, None)) for one in entities]
        for caller in callers:
            self.together.miss(caller)
        return callers

    def posting(self, *rows: dict[str, object] | None) -> list[Caller]:
        """Callers with rows; None: whose body is something else."""
        active = self.live.pointer.active
        assert active is not None
        nobody = Missed("", b"", 0.0, 0.0, None)
        asks = [None if row is None else Posted(Ask(entity_id=None, features=row), 0.0) for row in rows]
        callers = [Caller(active, nobody, ask) for ask in asks]
        for caller in callers:
            self.together.post(caller)
        return callers


class Counting:
    """A scorer that keeps how many rows each pass had, and can fail."""

    def __init__(self, scorer: Scorer) -> None:
        self.passes: list[int] = []
        self.fails = False
        self._scorer = scorer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    def score(self, encoded: Encoded) -> np.ndarray:
        self.passes.append(len(encoded))
        if self.fails:
            return np.empty((len(encoded) + 1, 1), np.float32)
        return self._scorer.score(encoded)


@asynccontextmanager
async def _room(scorer: Any, memory: MemoryStore, **service: Any) -> AsyncIterator[Room]:
    settings = service_settings(scorer, write_back=False, pointer_poll_seconds=60, **service)
    dependencies = Dependencies(
        open_scorer=lambda _bundle, _settings: scorer, open_store=opener(memory), monotonic=Standing()
    )
    app = create_app(settings, dependencies=dependencies)
    assert isinstance(app, Application)
    assert isinstance(app.lane, FastLane)
    async with app.router.lifespan_context(app) as state:
        assert state is not None
        held = state["service"]
        await eventually(lambda: isinstance(held.phase, Live))
        yield Room(app.lane.together, held.phase)


class Standing:
    """A clock at zero."""

    def now(self) -> float:
        return 0.0


def _run(scorer: Any, memory: MemoryStore, work: Callable[[Room], Coroutine[Any, Any, None]], **service: Any) -> None:
    async def main() -> None:
        async with _room(scorer, memory, **service) as room:
            await work(room)

    asyncio.run(main())


async def _answered(callers: Sequence[Caller]) -> None:
    await eventually(lambda: all(caller.is_done for caller in callers))


def _know(memory: MemoryStore, *entities: str) -> None:
    for entity in entities:
        asyncio.run(memory.async_store.features.write(entity, payload_of(ROW), 60))


@pytest.fixture
def counting(scorer: Scorer) -> Counting:
    return Counting(scorer)


@pytest.fixture(autouse=True)
def _published(scorer: Scorer, memory: MemoryStore) -> None:
    publish(memory.store, scorer, {"known": ROW})


def test_entities_of_one_turn_share_a_pass(counting: Counting, memory: MemoryStore) -> None:
    """Each gets its own answer; one without features its own refusal."""
    _know(memory, "a", "b")

    async def work(room: Room) -> None:
        a, nobody, b = callers = room.missing("a", "nobody", "b")
        await _answered(callers)
        assert [(one.body["entity_id"], one.sent[0].told.status) for one in (a, b)] == [("a", 200), ("b", 200)]
        assert (nobody.sent[0].told.status, nobody.sent[0].told.facts["problem"]) == (404, "unknown-entity")

    _run(counting, memory, work)
    assert counting.passes == [2]


def test_an_entity_that_is_scored_already_is_left_to_join(counting: Counting, memory: MemoryStore) -> None:
    """Of two callers for one entity in a turn, and of one who comes while it is under way, only the first begins."""
    _know(memory, "a", "b")

    async def work(room: Room) -> None:
        first, second = room.missing("a", "a")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (third,) = room.missing("a")
        await _answered([first, second, third])
        assert [len(one.sent) for one in (first, second, third)] == [1, 0, 0]
        assert [one.left for one in (first, second, third)] == [0, 1, 1]

    _run(counting, memory, work)
    assert counting.passes == [1]


def test_a_promotion_meanwhile_leaves_all_to_look_again(scorer: Scorer, memory: MemoryStore) -> None:
    """What the new snapshot may have is not answered from what the old one lacked."""
    _know(memory, "a")

    async def work(room: Room) -> None:
        publish(memory.store, scorer, {"a": ROW}, snapshot="1-B")
        (caller,) = room.missing("a")
        await _answered([caller])
        assert (caller.left, caller.sent) == (1, [])

    _run(scorer, memory, work)


def test_a_store_that_does_not_say_changes_nothing(scorer: Scorer, memory: MemoryStore) -> None:
    """A pointer that cannot be read just now stands; features that cannot be read are told as such."""
    _know(memory, "a")

    async def work(room: Room) -> None:
        memory.failure = StoreDown("gone")
        (caller,) = room.missing("a")
        await _answered([caller])
        assert caller.sent[0].told.status == 503
        memory.failure = None

    _run(scorer, memory, work)


def test_a_bad_row_costs_itself(counting: Counting, memory: MemoryStore) -> None:
    """Its neighbours are scored in one pass; a body that is no list of one row is left."""

    async def work(room: Room) -> None:
        good, bad, other, last = callers = room.posting(ROW, BAD, None, ROW)
        await _answered(callers)
        assert [one.body["results"][0].get("source") for one in (good, last)] == ["online"] * 2
        assert bad.body["results"][0]["error"]["status"] == 422
        assert (other.left, other.sent) == (1, [])

    _run(counting, memory, work)
    assert counting.passes == [2]


def test_what_is_refused_is_refused_in_small_parts(counting: Counting, memory: MemoryStore) -> None:
    """More rows in one turn than may wait: the first part is scored, as if it had come alone."""

    async def work(room: Room) -> None:
        callers = room.posting(*[ROW] * (2 * MOST_TOGETHER + 1))
        await _answered(callers)
        results = [one.body["results"][0] for one in callers]
        assert [one.get("source") for one in results[:MOST_TOGETHER]] == ["online"] * MOST_TOGETHER
        assert [one["error"]["status"] for one in results[MOST_TOGETHER:]] == [503] * (MOST_TOGETHER + 1)

    _run(counting, memory, work, max_queue_rows=MOST_TOGETHER)
    assert counting.passes == [MOST_TOGETHER]


def test_a_failure_that_nobody_foresaw_is_left_to_the_application(counting: Counting, memory: MemoryStore) -> None:
    """The model returns too many rows: each caller is left, once, and the next ones are answered."""
    _know(memory, "a", "b")
    counting.fails = True

    async def work(room: Room) -> None:
        callers = [*room.missing("a"), *room.posting(ROW)]
        await _answered(callers)
        assert [(one.left, one.sent) for one in callers] == [(1, [])] * 2
        counting.fails = False
        again = [*room.missing("b"), *room.posting(ROW)]
        await _answered(again)
        assert [len(one.sent) for one in again] == [1, 1]

    _run(counting, memory, work)
