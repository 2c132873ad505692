"""A look-up, without the client: which commands it needs, and what their replies say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shared.layout import MARKER_FIELD, Keys, bucket_of, unpack
from shared.snapshot import Absent, Lookup, Lost, SnapshotMeta

Reply: TypeAlias = list[bytes | None] | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One HMGET for each bucket that is touched, the marker asked last; ``positions`` say whose answers they are."""

    meta: SnapshotMeta
    size: int
    commands: tuple[tuple[str | bytes, ...], ...]
    positions: tuple[tuple[int, ...], ...]

    def answers(self, replies: Sequence[Reply]) -> list[Lookup]:
        """One answer for each id that was planned, in their order."""
        answers: list[Lookup] = [Lost("bucket")] * self.size
        for places, reply in zip(self.positions, replies, strict=True):
            for place, answer in zip(places, self._of_bucket(reply, len(places)), strict=True):
                answers[place] = answer
        return answers

    def _of_bucket(self, reply: Reply, count: int) -> list[Lookup]:
        if not isinstance(reply, list) or len(reply) != count + 1:
            return [Lost("corrupt")] * count  # the key is there, and not as a bucket of ours
        *values, marker = reply
        absent: Lookup = Lost("bucket") if marker is None else Absent()
        columns, fields = len(self.meta.columns), self.meta.fields
        return [absent if value is None else unpack(value, columns, fields) for value in values]


def plan(keys: Keys, meta: SnapshotMeta, ids: Sequence[str]) -> Plan:
    """Ids of one bucket share a command; an id that is asked twice is asked twice."""
    places: dict[int, list[int]] = {}
    for position, entity_id in enumerate(ids):
        places.setdefault(bucket_of(entity_id, meta.buckets), []).append(position)
    commands: tuple[tuple[str | bytes, ...], ...] = tuple(
        ("HMGET", keys.bucket(meta.snapshot, bucket), *(ids[position] for position in positions), MARKER_FIELD)
        for bucket, positions in places.items()
    )
    return Plan(meta, len(ids), commands, tuple(tuple(positions) for positions in places.values()))
