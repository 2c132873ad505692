"""Where the features of entities come from that the batch has not scored."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from shared.clock import Clock
from shared.errors import ColumnMissing, ColumnRefused, SettingsError, TableNotFound
from shared.metrics import Metrics
from shared.payload import row_of
from shared.store.interfaces import FeatureStore
from shared.telemetry import Logger

Row = Mapping[str, object]

MAX_UNKNOWN = 10_000
CHECK_SECONDS = 6.0
"""How long a source may take to look at its set-up, while nobody waits for it."""
MISTAKES = (SettingsError, TableNotFound, ColumnMissing, ColumnRefused)
"""What waiting does not mend."""

_log: Logger = structlog.get_logger()


class FeatureSource(Protocol):
    """One place to look for features. It may raise what it likes: the chain around it goes on to the next."""

    @property
    def name(self) -> str:
        """A word for logs and metrics."""
        ...

    async def read(self, ids: Sequence[str]) -> Mapping[str, Row | None]:
        """The raw features of the ids that it knows. None: it knows the entity and cannot read its features.

        For no ids it looks at its own set-up, if it has any to look at, and raises what is wrong with it.
        """
        ...

    async def close(self) -> None: ...


class StoreFeatures:
    """What ``PUT /features`` wrote: one JSON object for each entity."""

    name = "store"

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    async def read(self, ids: Sequence[str]) -> Mapping[str, Row | None]:
        payloads = await self._store.read(ids)
        return {entity: row_of(payload) for entity, payload in zip(ids, payloads, strict=True) if payload is not None}

    async def close(self) -> None:
        """The store belongs to whoever opened it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """``rows``: the features that were found. ``unsure``: not found, while a source that may have them failed."""

    rows: dict[str, Row]
    unsure: frozenset[str]


class FeatureChain:
    """Several sources, asked in order; each is asked only for what the ones before it did not have."""

    def __init__(self, sources: Sequence[FeatureSource], timeout: float, metrics: Metrics) -> None:
        self._sources = tuple(sources)
        self._timeout = timeout
        self._metrics = metrics
        self._failing: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(source.name for source in self._sources)

    @property
    def failing(self) -> frozenset[str]:
        """The sources whose last question failed."""
        return frozenset(self._failing)

    def pings(self, store: Callable[[], Awaitable[object]]) -> dict[str, Callable[[], Awaitable[object]]]:
        """What asks each source whether it is well; ``store`` asks the one that others look after."""
        return {
            source.name: store if isinstance(source, StoreFeatures) else partial(source.read, [])
            for source in self._sources
        }

    async def read(self, ids: Sequence[str]) -> Fetched:
        """One question to each source, however many ids there are."""
        rows: dict[str, Row] = {}
        unsure: set[str] = set()
        for source in self._sources:
            wanted = [entity for entity in ids if entity not in rows]
            if not wanted:
                break
            found = await self._ask(source, wanted)
            rows.update({entity: row for entity, row in found.items() if row is not None})
            unsure.update(entity for entity, row in found.items() if row is None)
        return Fetched(rows=rows, unsure=frozenset(unsure - rows.keys()))

    async def check(self) -> None:
        """Lets each source look at its set-up. A mistake is raised; a source that is down may come up later."""
        for source in self._sources:
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await source.read([])
            except MISTAKES:
                raise
            except Exception as error:  # noqa: BLE001 - a source is code of others
                self._failed(source, error)

    async def watch(self, every: float) -> None:
        """Asks the failing sources again and again, so that they are known to answer though nobody needs them."""
        while True:
            await asyncio.sleep(every)
            for source in [source for source in self._sources if source.name in self._failing]:
                with suppress(Exception):  # the log has it from when it began to fail
                    async with asyncio.timeout(CHECK_SECONDS):
                        await source.read([])
                    self._answered(source)

    async def close(self) -> None:
        for source in self._sources:
            await source.close()

    async def _ask(self, source: FeatureSource, ids: Sequence[str]) -> Mapping[str, Row | None]:
        """A source that fails or takes too long knows nothing for sure about any of the ids."""
        try:
            async with asyncio.timeout(self._timeout):
                found = _checked(await source.read(ids))
        except Exception as error:  # noqa: BLE001 - a source is code of others, and the next one may still have them
            self._failed(source, error)
            return dict.fromkeys(ids)
        self._answered(source)
        return found

    def _failed(self, source: FeatureSource, error: Exception) -> None:
        _log.warning("feature source failed", source=source.name, exc_info=error)
        self._metrics.feature_source_failed(source.name)
        self._failing.add(source.name)

    def _answered(self, source: FeatureSource) -> None:
        if source.name in self._failing:
            _log.info("feature source answers again", source=source.name)
            self._failing.remove(source.name)


def _checked(found: object) -> Mapping[str, Row | None]:
    """A source may be a user's own: what it returns is proved before anything relies on it."""
    if not isinstance(found, Mapping) or not all(row is None or isinstance(row, Mapping) for row in found.values()):
        raise TypeError("a feature source returns a mapping from ids to mappings or None")
    return found


class UnknownIds:
    """Remembers for a short while, per snapshot, that no source has features for an id."""

    def __init__(self, seconds: float, clock: Clock, limit: int = MAX_UNKNOWN) -> None:
        self._seconds = seconds
        self._clock = clock
        self._limit = limit
        self._seen: OrderedDict[str, tuple[str | None, float]] = OrderedDict()

    def remember(self, snapshot: str | None, entity_id: str) -> None:
        """From now on, for so many seconds or until another snapshot is active."""
        self._seen[entity_id] = (snapshot, self._clock.now() + self._seconds)
        self._seen.move_to_end(entity_id)
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)

    def forget(self, entity_id: str) -> None:
        """Its features are known from now on."""
        self._seen.pop(entity_id, None)

    def has(self, snapshot: str | None, entity_id: str) -> bool:
        """Whether it was found to be unknown just now, under that snapshot."""
        known, until = self._seen.get(entity_id, (None, 0.0))
        return known == snapshot and self._clock.now() < until
