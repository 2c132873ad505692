import asyncio
from typing import Self

from support.chronicle import Chronicle
from support.lives import IDS, MODEL

from service.lookup import Cache, View
from service.pointer import Pointer
from shared.settings import Settings
from shared.store.connect import open_async_store
from shared.testing.clock import FrozenClock


class Readers:
    """Two services as far as they look up: one that polls before each look, and a late one."""

    def __init__(self, settings: Settings, clock: FrozenClock) -> None:
        self._settings, self._clock = settings, clock

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._opened = open_async_store(self._settings, MODEL)
        reader = self._runner.run(self._opened.__aenter__()).reader
        self._prompt, self._late = Pointer(reader, self._clock), Pointer(reader, self._clock)
        self._caches = [Cache(reader, pointer, self._clock) for pointer in (self._prompt, self._late)]
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._opened.__aexit__(None, None, None))
        self._runner.close()

    def late_polls(self) -> None:
        self._runner.run(self._late.refresh())

    def look_up(self, known: Chronicle) -> list[View]:
        """The late one asks only for those whom its snapshot has, as it would poll for the others."""
        return self._runner.run(self._look_up(known))

    async def _look_up(self, known: Chronicle) -> list[View]:
        await self._prompt.refresh()
        late = self._late.active
        ids = IDS if late is None else list(known.of(late.meta)[0])
        return [await self._caches[0].look_up(IDS), await self._caches[1].look_up(ids)]
