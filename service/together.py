"""What the requests of one turn of the event loop need computed, computed together: one task, one question to the
feature sources and one forward pass for all of them.

Here go the plain ones: an entity that the active snapshot was just found not to have, and a list of one row of
features. What surrounds a request that goes its way alone (a task, a time limit, the framework's objects) takes several
times as long as its score. Whatever is not plain, or fails in a way that nobody foresaw, is left to the application.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Protocol, TypeVar

import structlog

from service.deadline import within
from service.online import Terms
from service.online_answers import Missed, OnlineAnswers, Posted, Sent, timing
from service.pointer import Pointer
from service.runtime import Live, Service
from shared.errors import RequestError, StoreError
from shared.snapshot import Active
from shared.telemetry import Logger, StageTimer

T = TypeVar("T")

MOST_TOGETHER = 64
"""Rows of one go: what the event loop does at a time stays short, and what is refused is refused in small parts."""

_log: Logger = structlog.get_logger()


class Waiting(Protocol):
    """A request that waits. It is sent its answer and then told of, or left; all from the event loop."""

    def send(self, sent: Sent) -> None: ...

    def tell(self, sent: Sent) -> None:
        """Its line and its counts: a third cheaper once all are sent than between two system calls."""
        ...

    def leave(self) -> None:
        """The application is to answer."""
        ...


class Missing(Waiting, Protocol):
    """One for an entity."""

    @property
    def active(self) -> Active:
        """The snapshot that does not have it."""
        ...

    @property
    def missed(self) -> Missed: ...


class Posting(Waiting, Protocol):
    """One with a body."""

    def posted(self) -> Posted | None:
        """What it asks; None where that is not here yet, or is no plain list of one row."""
        ...


class Together:
    """Gathers what is asked in one turn of the event loop, and begins with it when that is over."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._clock = service.dependencies.monotonic
        self._answers = OnlineAnswers(service)
        self._missing: list[Missing] = []
        self._posting: list[Posting] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def miss(self, waiting: Missing) -> None:
        """Scores an entity with the others."""
        self._expect()
        self._missing.append(waiting)

    def post(self, waiting: Posting) -> None:
        """Scores a row with the others, if its body is whole by the end of this turn."""
        self._expect()
        self._posting.append(waiting)

    def _expect(self) -> None:
        if not self._missing and not self._posting:
            asyncio.get_running_loop().call_soon(self._depart)

    def _depart(self) -> None:
        missing, self._missing = self._missing, []
        posting, self._posting = self._posting, []
        live = self._service.phase
        if not isinstance(live, Live):
            _leave([*missing, *posting])
            return
        for some in _parts(self._alone(live, missing)):
            self._begin(some, self._score_missed(live, [one.missed for one in some]))
        for pairs in _parts(_read(posting)):
            self._begin([one for one, _ in pairs], self._score_posted(live, [asked for _, asked in pairs]))

    def _alone(self, live: Live, missing: Sequence[Missing]) -> list[Missing]:
        """Those whose entities nobody else scores: who may join another's computation waits for that alone."""
        active, found = live.pointer.active, dict[str, Missing]()
        for one in missing:
            entity, same = one.missed.entity, _is_same(one.active, active)
            if not same or entity in found or live.desk.is_under_way(one.active, entity):
                one.leave()
            else:
                found[entity] = one
        return list(found.values())

    def _begin(self, waiting: Sequence[Waiting], work: Coroutine[None, None, Sequence[Sent] | None]) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(waiting, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, waiting: Sequence[Waiting], work: Coroutine[None, None, Sequence[Sent] | None]) -> None:
        """First all answers are made, then all are sent, and told of last (see ``service.landing``)."""
        try:
            answers = await work
        except Exception as error:  # noqa: BLE001 - the application meets it too, and says so to each caller
            _log.warning("not answered together", requests=len(waiting), exc_info=error)
            answers = None
        if answers is None:
            _leave(waiting)
            return
        for one, sent in zip(waiting, answers, strict=True):
            one.send(sent)
        for one, sent in zip(waiting, answers, strict=True):
            one.tell(sent)

    async def _score_missed(self, live: Live, missed: Sequence[Missed]) -> list[Sent] | None:
        """None where another snapshot is active by now, which may have them."""
        active = live.pointer.active
        if active is None:
            return None
        stages = StageTimer(self._clock)
        entities = [one.entity for one in missed]
        try:
            async with within(self._service.settings.service.deadline_ms, self._spent(missed)):
                results, stands = await asyncio.gather(
                    live.desk.score_absent(active, entities, stages), _stands(live.pointer, active)
                )
        except RequestError as error:
            results, stands = dict.fromkeys(entities, error), True
        if not stands:
            return None
        self._service.metrics.lookup("absent", len(missed))
        return [self._answers.one(live, one, results[one.entity], stages.seconds) for one in missed]

    async def _score_posted(self, live: Live, posted: Sequence[Posted]) -> list[Sent]:
        stages = StageTimer(self._clock)
        asks = [one.ask for one in posted]
        try:
            async with within(self._service.settings.service.deadline_ms, self._spent(posted)) as until:
                replies = await live.desk.answer(asks, stages, Terms(until=until))
        except RequestError as error:
            return [self._answers.refused(one, error, stages.seconds) for one in posted]
        snapshot = None if replies.active is None else replies.active.meta.snapshot
        times = timing(stages.seconds)
        return [
            self._answers.many(live, one, result, snapshot, stages.seconds, times)
            for one, result in zip(posted, replies.results, strict=True)
        ]

    def _spent(self, asked: Sequence[Missed | Posted]) -> float:
        """How long the one who has waited for the longest has."""
        return self._clock.now() - min(one.start for one in asked)


async def _stands(pointer: Pointer, active: Active) -> bool:
    """Whether it is the active snapshot still, as far as the store says."""
    try:
        now = await pointer.refresh_together()
    except StoreError:
        now = pointer.active
    return _is_same(active, now)


def _is_same(active: Active, now: Active | None) -> bool:
    """Whether the two are of one snapshot: each time that the pointer is read, there is a new object."""
    return now is not None and now.meta.snapshot == active.meta.snapshot


def _read(posting: Sequence[Posting]) -> list[tuple[Posting, Posted]]:
    """Each with what it asks; the others are left."""
    found: list[tuple[Posting, Posted]] = []
    for one in posting:
        asked = one.posted()
        if asked is None:
            one.leave()
        else:
            found.append((one, asked))
    return found


def _parts(some: Sequence[T]) -> Iterator[Sequence[T]]:
    return (some[start : start + MOST_TOGETHER] for start in range(0, len(some), MOST_TOGETHER))


def _leave(waiting: Sequence[Waiting]) -> None:
    for one in waiting:
        one.leave()
