"""From questions to answers: the snapshot first, the model for what it does not have.

Every question gets an answer or an error of its own. One question goes the same way as a thousand, so that an entity
asked for alone and in a list cannot get two answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from service.answers import Answer
from service.deadline import within
from service.flight import Flight, Flights, Key
from service.forward import Row
from service.freshness import ANY, Wish
from service.headers import CacheStatus
from service.items import Ask
from service.lookup import Cache, Hit, Outcome, Stale, StoreDown, View
from service.refusals import not_cached, unscored, without_features
from service.scoring import Computed, Given, Job, NoFeatures, Scoring
from shared.clock import Clock
from shared.errors import RequestError
from shared.snapshot import Active
from shared.telemetry import Metrics, StageTimer

Result = Answer | RequestError
NOT_RESCORED = "not-rescored"
"""The detail of an answer that is older than was wished for: no new score could be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms a caller wants his answers: how fresh, and by when (by the event loop's clock)."""

    wish: Wish = ANY
    until: float | None = None


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
    clock: Clock
    metrics: Metrics

    async def answer(self, asks: Sequence[Ask], stages: StageTimer, terms: Terms) -> Replies:
        """One look-up, one question to each feature source and one forward pass, however many questions there are."""
        view = await self._look_up(asks, stages)
        results = self._fresh_hits(view, terms.wish)
        open_ = {entity: one for entity, one in view.outcomes.items() if entity not in results}
        given = {
            place: Given(entity_id=ask.entity_id, row=ask.features)
            for place, ask in enumerate(asks)
            if ask.features is not None
        }
        if terms.wish.only_if_cached:
            results |= {entity: unscored(one) for entity, one in open_.items()} | dict.fromkeys(given, not_cached())
        elif open_ or given:
            computed = await self._compute(view, tuple(open_), given, stages, terms.until)
            results |= {key: self._told(key, one, view) for key, one in computed.items()}
        return Replies(active=view.active, results=[results[_key(place, ask)] for place, ask in enumerate(asks)])

    async def features_changed(self, entity_id: str, row: Row, stages: StageTimer) -> None:
        """The entity has new features: nothing that was computed from the old ones is answered or kept from now on.

        If the active snapshot holds an online score of it, it is scored anew.
        """
        self.scoring.unknown.forget(entity_id)
        self.flights.forget(entity_id)
        view = await self.cache.look_up([entity_id])
        one = view.outcomes[entity_id]
        if view.active is not None and isinstance(one, Hit) and one.online:
            await self.scoring.replace(view.active, entity_id, row, stages)

    async def _look_up(self, asks: Sequence[Ask], stages: StageTimer) -> View:
        ids = list(dict.fromkeys(ask.entity_id for ask in asks if ask.features is None and ask.entity_id is not None))
        with stages.stage("lookup"):
            view = await self.cache.look_up(ids)
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
        return Answer.from_hit(entity, hit, view.active.meta, self.scoring.model.golden_digest, detail=detail)

    async def _compute(
        self,
        view: View,
        entities: Sequence[str],
        given: Mapping[int, Given],
        stages: StageTimer,
        until: float | None,
    ) -> dict[Key, Computed]:
        """Joins what others compute already, and computes the rest in one go, for others to join.

        Given features are of this caller only: without other work they are his, and end with him.
        """
        snapshot = view.active.meta.snapshot if view.active is not None else None
        joined = {entity: one for entity in entities if (one := self.flights.find(snapshot, entity)) is not None}
        job = Job(
            active=view.active,
            entities=[entity for entity in entities if entity not in joined],
            given=given,
            kept=frozenset(entity for entity, one in view.outcomes.items() if _is_kept(one)),
        )
        computed: dict[Key, Computed] = {}
        if job.entities:
            flight = self.flights.start(snapshot, job.entities, partial(self._fly, job, stages))
            computed |= await flight.results()
        elif given:
            computed |= await self.scoring.compute(job, stages, until)
        for entity, other in joined.items():
            with stages.stage("flight"):
                computed[entity] = await _joined(other, entity)
        return computed

    async def _fly(self, job: Job, stages: StageTimer, flight: Flight[Computed]) -> dict[Key, Computed]:
        """The work is the server's, with a time limit of its own: no caller's end ends it."""
        mine = replace(job, is_current=partial(self.flights.is_current, flight))
        async with within(self.flight_ms) as until:
            return await self.scoring.compute(mine, stages, until)

    def _told(self, key: Key, computed: Computed, view: View) -> Result:
        """What this caller is told of it, by what the snapshot has of the entity."""
        one = view.outcomes[key] if isinstance(key, str) else None
        match computed:
            case Answer():
                return replace(computed, cache=_forwarded(computed.cache, one))
            case _ if isinstance(key, str) and isinstance(one, Hit):
                return self._hit(key, one, view, NOT_RESCORED)
            case NoFeatures(unsure=unsure) if one is not None:
                return without_features(one, unsure=unsure)
            case RequestError():
                return computed
        raise TypeError("given features are features")


def _is_kept(one: Outcome) -> bool:
    """Whether an online score takes the place of what the snapshot has: never that of a batch score which may still be
    served, and not while the store cannot tell."""
    return not isinstance(one, StoreDown) and (not isinstance(one, Hit) or one.online)


def _forwarded(status: CacheStatus, one: Outcome | None) -> CacheStatus:
    match one:
        case Hit():
            return replace(status, forwarded="request")
        case Stale():
            return replace(status, forwarded="stale")
        case StoreDown(word=word):
            return replace(status, forwarded="bypass", detail=f"store-{word}")
        case None:
            return replace(status, forwarded="bypass")
    return replace(status, forwarded="miss")


async def _joined(flight: Flight[Computed], entity: str) -> Computed:
    """What another caller's computation found; its failure costs this caller one item."""
    try:
        found = (await flight.results())[entity]
    except RequestError as error:
        return error
    return replace(found, cache=replace(found.cache, collapsed=True)) if isinstance(found, Answer) else found


def _key(place: int, ask: Ask) -> Key:
    return place if ask.features is not None or ask.entity_id is None else ask.entity_id
