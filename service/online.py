"""From questions to answers: the snapshot first, the model for what it does not have.

Every question gets an answer or an error of its own. One question goes the same way as a thousand, so that an entity
asked for alone and in a list cannot get two answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from service.answers import Answer
from service.deadline import within
from service.flight import Flight, Flights, Key
from service.forward import Row
from service.freshness import ANY, Wish
from service.headers import CacheStatus
from service.items import Ask
from service.lookup import Cache, Hit, Miss, Outcome, Seen, Stale, StoreDown, View
from service.refusals import not_cached, unscored, without_features
from service.scoring import Computed, Given, Job, NoFeatures, Scoring
from service.writeback import TokenBucket
from shared.clock import Clock
from shared.errors import RequestError, ScoreUnavailable
from shared.metrics import Metrics
from shared.snapshot import Active
from shared.telemetry import StageTimer

Result = Answer | RequestError
NOT_RESCORED = "not-rescored"
"""The detail of an answer that is older than was wished for: no new score could be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms a caller wants his answers: how fresh, and by when (by the event loop's clock)."""

    wish: Wish = ANY
    until: float | None = None
    seen: Seen | None = None
    """What was found already of the one entity that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """One result for each question, in order; all that come from the cache come from ``active``."""

    active: Active | None
    results: list[Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Answers questions. What several callers lack at the same time is computed once, for all of them."""

    cache: Cache
    scoring: Scoring
    flights: Flights[Computed]
    flight_ms: int
    """How long a shared computation may take."""
    renewals: TokenBucket
    """How many scores may be renewed in the background."""
    clock: Clock
    metrics: Metrics

    async def answer(self, asks: Sequence[Ask], stages: StageTimer, terms: Terms) -> Replies:
        """One look-up, one question to each feature source and one forward pass, however many questions there are."""
        view = await self._look_up(asks, stages, terms.seen)
        results = self._fresh_hits(view, terms.wish)
        due = [
            entity for entity, one in view.outcomes.items() if isinstance(one, Hit) and one.due and entity in results
        ]
        open_ = {entity: one for entity, one in view.outcomes.items() if entity not in results}
        given = {
            place: Given(entity_id=ask.entity_id, row=ask.features)
            for place, ask in enumerate(asks)
            if ask.features is not None
        }
        if terms.wish.only_if_cached:
            results |= {entity: unscored(one) for entity, one in open_.items()} | dict.fromkeys(given, not_cached())
        elif open_ or given:
            computed = await self._compute(view, tuple(open_), given, stages, terms)
            results |= {key: self._told(key, one, view) for key, one in computed.items()}
        if due and not terms.wish.only_if_cached:
            self._renew(view, due)
        self._count(results.values())
        return Replies(active=view.active, results=[results[_key(place, ask)] for place, ask in enumerate(asks)])

    def _count(self, results: Iterable[Result]) -> None:
        told = [
            one.source if isinstance(one, Answer) else "refused"
            for one in results
            if isinstance(one, Answer | ScoreUnavailable)
        ]
        for source in set(told):
            self.metrics.answered(source, told.count(source))

    async def score_absent(
        self, active: Active, entities: Sequence[str], stages: StageTimer
    ) -> dict[str, Answer | RequestError]:
        """Scores of entities that ``active`` was found not to have, each of another one and none under way: in one go,
        for others to join. What it costs to be sure of that is the caller's."""
        view = View(active=active, outcomes=dict.fromkeys(entities, Miss()))
        flight = self._start(view, entities, {})
        found = await flight.results()
        stages.add_all(flight.stages)
        told = {entity: self._told(entity, found[entity], view) for entity in entities}
        self._count(told.values())
        return told

    def is_under_way(self, active: Active, entity: str) -> bool:
        """Whether the entity is being scored, or was just now: then one may join."""
        return self.flights.find(active.meta.snapshot, entity) is not None

    async def features_changed(self, entity_id: str, row: Row, stages: StageTimer) -> None:
        """The entity has new features: nothing that was computed from the old ones is answered or kept from now on.

        If the active snapshot holds an online score of it, it is scored anew.
        """
        self.scoring.unknown.forget(entity_id)
        self.flights.forget(entity_id)
        await self.scoring.withdraw(entity_id)
        view = await self.cache.look_up([entity_id])
        one = view.outcomes[entity_id]
        if view.active is not None and isinstance(one, Hit) and one.online:
            await self.scoring.replace(view.active, entity_id, row, stages)

    def _renew(self, view: View, due: Sequence[str]) -> None:
        """Scores anew what will be too old soon, unless it is being computed. No caller waits for it."""
        if view.active is None or not self.scoring.keeps(view.active):
            return
        idle = [entity for entity in due if self.flights.find(view.active.meta.snapshot, entity) is None]
        begun = [entity for entity in idle if self.renewals.take()]
        self.metrics.renewals("begun", len(begun))
        self.metrics.renewals("over_budget", len(idle) - len(begun))
        if begun:
            self._start(view, begun, {})

    async def _look_up(self, asks: Sequence[Ask], stages: StageTimer, seen: Seen | None) -> View:
        ids = list(dict.fromkeys(ask.entity_id for ask in asks if ask.features is None and ask.entity_id is not None))
        with stages.stage("lookup"):
            view = await self.cache.look_up(ids, seen)
        for one in view.outcomes.values():
            self.metrics.lookup(one.word)
        return view

    def _fresh_hits(self, view: View, wish: Wish) -> dict[Key, Result]:
        now = self.clock.now()
        return {
            entity: self._hit(entity, one, view)
            for entity, one in view.outcomes.items()
            if isinstance(one, Hit) and wish.takes(max(0, int(now) - one.scored_at))
        }

    def _hit(self, entity: str, hit: Hit, view: View, detail: str | None = None) -> Answer:
        if view.active is None:
            raise TypeError("a hit is in a snapshot")
        self.metrics.served(max(0.0, self.clock.now() - hit.scored_at))
        return Answer.from_hit(entity, hit, view.active.meta, self.scoring.model.golden_digest, detail=detail)

    async def _compute(
        self,
        view: View,
        entities: Sequence[str],
        given: Mapping[int, Given],
        stages: StageTimer,
        terms: Terms,
    ) -> dict[Key, Computed]:
        """Joins what others compute already, and computes the rest in one go, for others to join.

        Given features are of this caller only: without other work they are his, and end with him.
        """
        joined = {entity: one for entity in entities if (one := self._joinable(view, entity, terms.wish)) is not None}
        self.metrics.joined(len(joined))
        rest = [entity for entity in entities if entity not in joined]
        computed: dict[Key, Computed] = {}
        if rest:
            flight = self._start(view, rest, given)
            found = await flight.results()
            mine: list[Key] = [*rest, *given]
            computed |= {key: found[key] for key in mine}
            stages.add_all(flight.stages)
        elif given:
            computed |= await self.scoring.compute(Job(active=view.active, given=given), stages, terms.until)
        for entity, other in joined.items():
            with stages.stage("flight"):
                computed[entity] = await _joined(other, entity)
        return computed

    def _start(self, view: View, entities: Sequence[str], given: Mapping[int, Given]) -> Flight[Computed]:
        """Begins a flight for the entities; with nothing else to do, together with others of this turn."""
        snapshot = _snapshot(view)
        begin = self.flights.start if given else self.flights.board
        flight = begin(snapshot, entities, partial(self._fly, view.active, given))
        flight.kept.update(entity for entity in entities if _is_kept(view.outcomes[entity]))
        return flight

    async def _fly(
        self, active: Active | None, given: Mapping[int, Given], flight: Flight[Computed]
    ) -> dict[Key, Computed]:
        """The work is the server's, with a time limit of its own: no caller's end ends it."""
        job = Job(
            active=active,
            entities=tuple(flight.entities),
            given=given,
            kept=flight.kept,
            is_current=partial(self.flights.is_current, flight),
        )
        async with within(self.flight_ms) as until:
            found = await self.scoring.compute(job, flight.stages, until)
        flight.held.update(
            entity for entity in flight.entities if isinstance(one := found[entity], Answer) and one.cache.stored
        )
        return found

    def _joinable(self, view: View, entity: str, wish: Wish) -> Flight[Computed] | None:
        """A computation of the entity that is under way; or one that has ended, if its result was not in the store yet
        when this caller looked there, and is fresh enough for him."""
        flight = self.flights.find(_snapshot(view), entity)
        if flight is None or flight.landed_at is None:
            return flight
        answer = flight.task.result()[entity]
        fresh = isinstance(answer, Answer) and wish.takes(answer.age(self.clock.now()))
        return flight if fresh and isinstance(view.outcomes[entity], Miss) else None

    def _told(self, key: Key, computed: Computed, view: View) -> Result:
        """What this caller is told of it, by what the snapshot has of the entity."""
        one = view.outcomes[key] if isinstance(key, str) else None
        match computed:
            case Answer():
                cache = _forwarded(computed.cache, one)
                return computed if cache is computed.cache else replace(computed, cache=cache)
            case _ if isinstance(key, str) and isinstance(one, Hit):
                return self._hit(key, one, view, NOT_RESCORED)
            case NoFeatures(unsure=unsure) if one is not None:
                return without_features(one, unsure=unsure)
            case RequestError():
                return computed
        raise TypeError("given features are features")


def _is_kept(one: Outcome) -> bool:
    """Whether an online score takes the place of what the snapshot has: never that of a batch score which is not about
    to be too old, and not while the store cannot tell."""
    if isinstance(one, Hit):
        return one.source == "cache" and (one.online or one.due)
    return not isinstance(one, StoreDown)


def _snapshot(view: View) -> str | None:
    return None if view.active is None else view.active.meta.snapshot


def _forwarded(status: CacheStatus, one: Outcome | None) -> CacheStatus:
    """The same object where it says so already, as it does of what is asked for most."""
    match one:
        case Hit():
            return replace(status, forwarded="request")
        case Stale():
            return replace(status, forwarded="stale")
        case StoreDown(word=word):
            return replace(status, forwarded="bypass", detail=f"store-{word}")
        case None:
            return status if status.forwarded == "bypass" else replace(status, forwarded="bypass")
    return status if status.forwarded == "miss" else replace(status, forwarded="miss")


async def _joined(flight: Flight[Computed], entity: str) -> Computed:
    """What another caller's computation found; its failure costs this caller one item."""
    try:
        found = (await flight.results())[entity]
    except RequestError as error:
        return error
    return replace(found, cache=replace(found.cache, collapsed=True)) if isinstance(found, Answer) else found


def _key(place: int, ask: Ask) -> Key:
    return place if ask.features is not None or ask.entity_id is None else ask.entity_id
