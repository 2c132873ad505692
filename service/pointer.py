"""Which snapshot is active, as this process knows it.

Polling decides, and a flip is seen within one poll. The last known pointer outlives the store: an empty or silent
store says nothing about which snapshot was promoted last.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from shared.clock import Clock
from shared.errors import StoreError
from shared.snapshot import Active
from shared.store.interfaces import SnapshotReader
from shared.telemetry import Logger

_log: Logger = structlog.get_logger()


class Pointer:
    """The active snapshot as it was last read, and when that was."""

    def __init__(self, reader: SnapshotReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._asked = 0
        self._applied = 0
        self._read_at: float | None = None
        self._active: Active | None = None
        self._reachable = False
        self._lost = False
        self._next: asyncio.Task[Active | None] | None = None

    @property
    def active(self) -> Active | None:
        """The last known pointer; None: none was ever promoted, or none was ever read (see ``known``)."""
        return self._active

    @property
    def known(self) -> bool:
        """Whether the store was ever asked with success."""
        return self._read_at is not None

    @property
    def reachable(self) -> bool:
        """Whether the last try succeeded."""
        return self._reachable

    @property
    def lost(self) -> bool:
        """Whether the store has forgotten the snapshot that was active: it came back empty, or evicted the pointer."""
        return self._lost

    def age(self) -> float | None:
        """Seconds since it was last read; None if it never was."""
        return None if self._read_at is None else max(0.0, self._clock.now() - self._read_at)

    async def refresh(self) -> Active | None:
        """Reads it now and returns what is known then; StoreError if the store does not say."""
        self._asked += 1
        turn = self._asked
        try:
            active = await self._reader.active()
        except StoreError:
            self._reachable = False
            raise
        self._reachable = True
        self._read_at = self._clock.now()
        self._lost = active is None and self._active is not None
        if active is not None and turn > self._applied:  # an answer overtaken by a later question's is old news
            self._applied = turn
            self._move(active)
        return self._active

    async def refresh_together(self) -> Active | None:
        """As ``refresh``, with one question for all who come in this turn of the event loop."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._refresh_next())
        return await asyncio.shield(self._next)

    async def _refresh_next(self) -> Active | None:
        self._next = None  # whoever comes from now on may have looked later than this question is answered
        return await self.refresh()

    async def watch(self, seconds: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Reads it for ever, every so many seconds."""
        while True:
            reachable = self._reachable
            try:
                await self.refresh()
            except StoreError as error:
                if reachable:
                    _log.warning("store lost", exc_info=error)
            except Exception as error:  # noqa: BLE001 - whatever happens, a service must not stop looking
                _log.error("pointer not read", exc_info=error)
            else:
                if not reachable:
                    _log.info("store reached")
            await sleep(seconds)

    def _move(self, active: Active) -> None:
        before = self._active
        self._active = active
        if before is None or before.meta.snapshot != active.meta.snapshot:
            _log.info("snapshot active", snapshot=active.meta.snapshot, epoch=active.epoch)
