"""Features of entities that the batch has not seen: one key for each, which expires."""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from shared.layout import Keys
from shared.store.link import AsyncLink, Link

SLAB_COMMANDS = 1000
SLAB_BYTES = 4 * 1024**2
"""A slab of commands goes out once it has so many of them or so many bytes, and then its replies are read."""

Command = tuple[object, ...]


class RedisFeatureStore:
    """``interfaces.FeatureStore`` on Redis or Valkey. The payload is the caller's business."""

    def __init__(self, link: AsyncLink, keys: Keys) -> None:
        self._link = link
        self._keys = keys

    async def read(self, ids: Sequence[str]) -> list[bytes | None]:
        commands = [("GET", self._keys.features(entity_id)) for entity_id in ids]
        return cast("list[bytes | None]", await self._link.pipeline(commands))

    async def write(self, entity_id: str, payload: bytes, ttl_seconds: int) -> None:
        await self._link.command("SET", self._keys.features(entity_id), payload, "EX", ttl_seconds)

    async def delete(self, entity_id: str) -> None:
        await self._link.command("DEL", self._keys.features(entity_id))


class RedisFeatureWriter:
    """``interfaces.FeatureWriter`` on Redis or Valkey."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys

    def write_many(self, rows: Iterable[tuple[str, bytes]], ttl_seconds: int) -> int:
        commands = (("SET", self._keys.features(entity), payload, "EX", ttl_seconds) for entity, payload in rows)
        written = 0
        for slab in _slabs(commands):
            self._link.pipeline(slab)
            written += len(slab)
        return written


def _slabs(commands: Iterable[tuple[str, str, bytes, str, int]]) -> Iterator[list[Command]]:
    slab: list[Command] = []
    size = 0
    for command in commands:
        slab.append(command)
        size += len(command[2])
        if len(slab) == SLAB_COMMANDS or size >= SLAB_BYTES:
            yield slab
            slab, size = [], 0
    if slab:
        yield slab
