"""Online scores on their way back into the snapshot."""

from collections.abc import Sequence

from shared.layout import Keys, bucket_of, pack_scores
from shared.snapshot import SnapshotMeta
from shared.store import scripts
from shared.store.link import AsyncLink


class RedisOnlineWriter:
    """``interfaces.OnlineWriter`` on Redis or Valkey."""

    def __init__(self, link: AsyncLink, keys: Keys) -> None:
        self._link = link
        self._keys = keys

    async def write_back(self, meta: SnapshotMeta, entity_id: str, scores: Sequence[float], scored_at: int) -> bool:
        bucket = self._keys.bucket(meta.snapshot, bucket_of(entity_id, meta.buckets))
        value = pack_scores(scores, scored_at=scored_at, online=True)
        return bool(await self._link.command(*scripts.WRITE_BACK.call(bucket, entity_id, value)))
