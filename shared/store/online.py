"""Online scores on their way back into the snapshot."""

from collections.abc import Sequence

from shared.layout import Keys, bucket_of, pack_scores
from shared.snapshot import SnapshotMeta
from shared.store import scripts
from shared.store.interfaces import OnlineScore
from shared.store.link import AsyncLink


class RedisOnlineWriter:
    """``interfaces.OnlineWriter`` on Redis or Valkey."""

    def __init__(self, link: AsyncLink, keys: Keys) -> None:
        self._link = link
        self._keys = keys

    async def write_back(self, meta: SnapshotMeta, scores: Sequence[OnlineScore]) -> list[bool]:
        buckets: dict[int, list[str | bytes]] = {}
        places = [bucket_of(one.entity_id, meta.buckets) for one in scores]
        for place, one in zip(places, scores, strict=True):
            value = pack_scores(one.scores, scored_at=one.scored_at, online=True)
            buckets.setdefault(place, []).extend((one.entity_id, value))
        prefix = self._keys.bucket_prefix(meta.snapshot)
        commands = [scripts.WRITE_VALUES.call(f"{prefix}{bucket}", *pairs) for bucket, pairs in buckets.items()]
        # as for a look-up, a key that is no hash costs itself
        replies = dict(zip(buckets, await self._link.hashes(commands), strict=True))
        return [bool(replies[place]) for place in places]
