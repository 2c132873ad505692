"""The store of a service that has none (``forescore serve --store none``): the open file says what is active."""

from collections.abc import Sequence
from typing import NoReturn

from service.shelf import Shelf
from shared.clock import Clock
from shared.errors import FeaturesNotKept, StoreDown
from shared.snapshot import Active, Listed, SnapshotMeta, SnapshotState
from shared.store.breaker import CircuitBreaker
from shared.store.interfaces import AsyncStore, OnlineScore, Peeker

NOT_KEPT = "this service has no store (FORESCORE_STORE=none), and keeps no features; give them with the question"


def file_store(shelf: Shelf, clock: Clock) -> AsyncStore:
    """A store of which only the pointer and the list of snapshots can be asked."""
    return AsyncStore(
        reader=_Reader(shelf), online=_NoScores(), features=_NoFeatures(), breaker=CircuitBreaker(1, 1.0, clock)
    )


class _Reader:
    """``interfaces.SnapshotReader``: look-ups go on to the file, as they do from a store that is down."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def active(self) -> Active:
        if (meta := self._shelf.meta) is None:
            _refuse()  # no file does not say that no snapshot was ever promoted
        return Active(meta=meta, epoch=0)

    async def lookup(self, meta: SnapshotMeta, ids: Sequence[str]) -> NoReturn:  # noqa: ARG002 - the interface's
        _refuse()

    async def peek(self, meta: SnapshotMeta, entity_id: bytes) -> NoReturn:  # noqa: ARG002 - the same
        _refuse()

    def peek_for(self, meta: SnapshotMeta, entity_id: bytes, peeker: Peeker) -> bool:  # noqa: ARG002 - the same
        return False

    async def snapshots(self) -> list[Listed]:
        meta = self._shelf.meta
        return [] if meta is None else [Listed(meta=meta, state=SnapshotState.READY, active=True)]

    async def ping(self) -> None:
        if self._shelf.meta is None:
            _refuse()


class _NoScores:
    async def write_back(self, meta: SnapshotMeta, scores: Sequence[OnlineScore]) -> list[bool]:  # noqa: ARG002 - the interface's
        return [False] * len(scores)


class _NoFeatures:
    async def read(self, ids: Sequence[str]) -> list[bytes | None]:
        return [None] * len(ids)

    async def write(self, entity_id: str, payload: bytes, ttl_seconds: int) -> None:  # noqa: ARG002 - the same
        raise FeaturesNotKept(NOT_KEPT)

    async def delete(self, entity_id: str) -> None:  # noqa: ARG002 - the same
        raise FeaturesNotKept(NOT_KEPT)


def _refuse() -> NoReturn:
    raise StoreDown("there is no store (FORESCORE_STORE=none)")
