"""A store in memory that keeps the same promises as the real one, and can be made to fail.

memory = MemoryStore("churn")
publish(memory.store, ...)              # the batch job's side
app = create_app(..., memory.async_store)   # the service's side
memory.failure = StoreDown("gone")      # from now on every call of either side raises it
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pyarrow as pa

from shared.clock import Clock, WallClock
from shared.errors import StoreError
from shared.layout import bucket_of, pack_scores, unpack
from shared.snapshot import (
    Absent,
    Active,
    Flip,
    Lease,
    Listed,
    Lookup,
    Lost,
    SnapshotMeta,
    SnapshotState,
)
from shared.store import refusals
from shared.store.breaker import CircuitBreaker
from shared.store.history import HISTORY_LENGTH, PROMOTE, ROLLBACK, previous
from shared.store.interfaces import AsyncStore, OnlineScore, Peeker, PublishBatch, Store

Bucket = dict[str, bytes]


@dataclass(kw_only=True)
class _Contents:
    clock: Clock
    model: str
    failure: StoreError | None = None
    buckets: dict[tuple[str, int], Bucket] = field(default_factory=dict)
    metas: dict[str, SnapshotMeta] = field(default_factory=dict)
    states: dict[str, SnapshotState] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    features: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    history: deque[Flip] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    pointer: tuple[str, int] | None = None
    lease: tuple[Lease, float] | None = None
    epoch: int = 0
    tokens: Iterator[int] = field(default_factory=count)

    def answer(self) -> None:
        """Called first by everything: this is where a failure strikes."""
        if self.failure is not None:
            raise self.failure

    def peek(self, meta: SnapshotMeta, entity_id: str) -> bytes | Absent | Lost:
        bucket = self.buckets.get((meta.snapshot, bucket_of(entity_id, meta.buckets)))
        return Lost("bucket") if bucket is None else bucket.get(entity_id, Absent())

    def lookup(self, meta: SnapshotMeta, entity_id: str) -> Lookup:
        value = self.peek(meta, entity_id)
        return unpack(value, len(meta.columns), meta.fields) if isinstance(value, bytes) else value

    def active(self) -> Active | None:
        return None if self.pointer is None else Active(meta=self.metas[self.pointer[0]], epoch=self.pointer[1])

    def listed(self) -> list[Listed]:
        active = None if self.pointer is None else self.pointer[0]
        rows = [
            Listed(meta=meta, state=self.states[snapshot], active=snapshot == active)
            for snapshot, meta in self.metas.items()
        ]
        return sorted(rows, key=lambda row: (row.meta.scored_at, row.meta.snapshot), reverse=True)

    def holds(self, lease: Lease) -> bool:
        return self.lease is not None and self.lease[0].token == lease.token and self.clock.now() < self.lease[1]


class MemoryStore:
    """``store`` and ``async_store`` look at the same contents. Buckets can be lost with ``lose_bucket``."""

    def __init__(self, model: str = "churn", clock: Clock | None = None) -> None:
        self._contents = _Contents(clock=clock or WallClock(), model=model)
        self.store = Store(
            writer=_Writer(self._contents),
            catalogue=_Catalogue(self._contents),
            control=_Control(self._contents),
            leases=_Leases(self._contents),
            features=_FeatureWriter(self._contents),
        )
        self.async_store = AsyncStore(
            reader=_Reader(self._contents),
            online=_Online(self._contents),
            features=_Features(self._contents),
            breaker=CircuitBreaker(5, 1, self._contents.clock),
        )

    @property
    def failure(self) -> StoreError | None:
        """What every call raises, or None while the store works."""
        return self._contents.failure

    @failure.setter
    def failure(self, failure: StoreError | None) -> None:
        self._contents.failure = failure

    def lose_bucket(self, meta: SnapshotMeta, entity_id: str) -> None:
        """As if the store had evicted the bucket of this entity."""
        del self._contents.buckets[meta.snapshot, bucket_of(entity_id, meta.buckets)]

    def corrupt(self, meta: SnapshotMeta, entity_id: str) -> None:
        """As if other bytes than ours lay under this entity."""
        self._contents.buckets[meta.snapshot, bucket_of(entity_id, meta.buckets)][entity_id] = b"\xff"

    def lose_everything(self) -> None:
        """As if the server had restarted empty."""
        fresh = _Contents(clock=self._contents.clock, model=self._contents.model)
        for name, value in vars(fresh).items():
            setattr(self._contents, name, value)


@dataclass(frozen=True)
class _Part:
    contents: _Contents


class _Reader(_Part):
    async def active(self) -> Active | None:
        self.contents.answer()
        return self.contents.active()

    async def lookup(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        self.contents.answer()
        return [self.contents.lookup(meta, entity_id) for entity_id in ids]

    async def peek(self, meta: SnapshotMeta, entity_id: bytes) -> bytes | Absent | Lost:
        self.contents.answer()
        return self.contents.peek(meta, entity_id.decode())

    def peek_for(self, meta: SnapshotMeta, entity_id: bytes, peeker: Peeker) -> bool:  # noqa: ARG002 - never
        """It waits for nothing, so there is nothing to save."""
        return False

    async def snapshots(self) -> list[Listed]:
        self.contents.answer()
        return self.contents.listed()

    async def ping(self) -> None:
        self.contents.answer()


class _Online(_Part):
    async def write_back(self, meta: SnapshotMeta, scores: Sequence[OnlineScore]) -> list[bool]:
        self.contents.answer()
        return [self._write(meta, one) for one in scores]

    def _write(self, meta: SnapshotMeta, one: OnlineScore) -> bool:
        bucket = self.contents.buckets.get((meta.snapshot, bucket_of(one.entity_id, meta.buckets)))
        if bucket is None:
            return False
        bucket[one.entity_id] = pack_scores(one.scores, scored_at=one.scored_at, online=True)
        return True


class _Features(_Part):
    async def read(self, ids: Sequence[str]) -> list[bytes | None]:
        self.contents.answer()
        now = self.contents.clock.now()
        found = [self.contents.features.get(entity_id) for entity_id in ids]
        return [entry[0] if entry is not None and now < entry[1] else None for entry in found]

    async def write(self, entity_id: str, payload: bytes, ttl_seconds: int) -> None:
        self.contents.answer()
        self.contents.features[entity_id] = (payload, self.contents.clock.now() + ttl_seconds)

    async def delete(self, entity_id: str) -> None:
        self.contents.answer()
        self.contents.features.pop(entity_id, None)


class _FeatureWriter(_Part):
    def write_many(self, rows: Iterable[tuple[str, bytes]], ttl_seconds: int) -> int:
        self.contents.answer()
        until = self.contents.clock.now() + ttl_seconds
        written = [(entity_id, (payload, until)) for entity_id, payload in rows]
        self.contents.features.update(written)
        return len(written)


class _Writer(_Part):
    def begin(self, meta: SnapshotMeta) -> None:
        contents = self.contents
        contents.answer()
        known = contents.metas.get(meta.snapshot)
        if known is not None and known.run_key != meta.run_key:
            raise refusals.of_another_run(meta.snapshot)
        contents.metas[meta.snapshot] = meta
        if contents.pointer is None or contents.pointer[0] != meta.snapshot:
            contents.states[meta.snapshot] = SnapshotState.WRITING

    def _write(self, meta: SnapshotMeta, batch: PublishBatch) -> int:
        self.contents.answer()
        rows = zip(batch.buckets.tolist(), batch.ids.to_pylist(), batch.values.to_pylist(), strict=True)
        for bucket, entity_id, value in rows:
            self.contents.buckets.setdefault((meta.snapshot, bucket), {})[entity_id] = value
        return len(batch)

    def fill(self, meta: SnapshotMeta, batches: Iterable[PublishBatch]) -> int:
        filled: set[int] = set()
        written = 0
        for batch in batches:
            filled.update(batch.buckets.tolist())
            written += self._write(meta, batch)
        for bucket in set(range(meta.buckets)) - filled:
            self.contents.buckets.setdefault((meta.snapshot, bucket), {})
        return written

    def count(self, meta: SnapshotMeta) -> int:
        self.contents.answer()
        return sum(len(self.contents.buckets.get((meta.snapshot, bucket), ())) for bucket in range(meta.buckets))

    def read(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        self.contents.answer()
        return [self.contents.lookup(meta, entity_id) for entity_id in ids]

    def read_buckets(self, meta: SnapshotMeta, buckets: range) -> PublishBatch:
        self.contents.answer()
        found = [(number, self.contents.buckets.get((meta.snapshot, number))) for number in buckets]
        if any(bucket is None for _, bucket in found):
            raise refusals.bucket_gone(meta.snapshot)
        rows = [(number, *entry) for number, bucket in found for entry in (bucket or {}).items()]
        return PublishBatch(
            ids=pa.array([entity_id for _, entity_id, _ in rows], pa.string()),
            buckets=np.array([number for number, _, _ in rows], np.uint32),
            values=pa.array([value for _, _, value in rows], pa.binary()),
        )

    def replace(self, meta: SnapshotMeta, batch: PublishBatch) -> int:
        self.contents.answer()
        written = 0
        rows = zip(batch.buckets.tolist(), batch.ids.to_pylist(), batch.values.to_pylist(), strict=True)
        for number, entity_id, value in rows:
            bucket = self.contents.buckets.get((meta.snapshot, number))
            if bucket is not None:
                bucket[entity_id] = value
                written += 1
        return written


class _Catalogue(_Part):
    def claim(self, version: str, bundle_digest: str) -> None:
        self.contents.answer()
        if self.contents.versions.setdefault(version, bundle_digest) != bundle_digest:
            raise refusals.conflict(self.contents.model, version)

    def active(self) -> Active | None:
        self.contents.answer()
        return self.contents.active()

    def snapshots(self) -> list[Listed]:
        self.contents.answer()
        return self.contents.listed()

    def history(self) -> list[Flip]:
        self.contents.answer()
        return list(self.contents.history)


class _Control(_Part):
    def promote(self, snapshot: str, lease: Lease, *, by: str, forced: bool = False) -> Flip:
        return self._flip(snapshot, lease, by=by, action=PROMOTE, forced=forced)

    def rollback(self, lease: Lease, *, by: str) -> Flip:
        self.contents.answer()
        usable = {row.meta.snapshot for row in self.contents.listed() if row.state is SnapshotState.READY}
        snapshot = previous(self.contents.history, usable)
        if snapshot is None:
            raise refusals.nothing_before()
        return self._flip(snapshot, lease, by=by, action=ROLLBACK, forced=False)

    def mark(self, snapshot: str, state: SnapshotState) -> None:
        self.contents.answer()
        if snapshot not in self.contents.states:
            raise refusals.unknown(snapshot)
        self.contents.states[snapshot] = state

    def update(self, meta: SnapshotMeta) -> None:
        self.contents.answer()
        if meta.snapshot not in self.contents.metas:
            raise refusals.unknown(meta.snapshot)
        self.contents.metas[meta.snapshot] = meta

    def amend(self, meta: SnapshotMeta, lease: Lease) -> None:
        contents = self.contents
        contents.answer()
        if not contents.holds(lease):
            raise refusals.not_amended("fenced", meta.snapshot, lease)
        if contents.pointer is None or contents.pointer[0] != meta.snapshot:
            raise refusals.not_amended("inactive", meta.snapshot, lease)
        contents.metas[meta.snapshot] = meta

    def retire(self, snapshot: str, *, force: bool = False) -> int:
        contents = self.contents
        contents.answer()
        refusal = self._why_not_retired(snapshot, force=force)
        if refusal is not None:
            raise refusals.not_retired(refusal, snapshot)
        names = [name for name in contents.buckets if name[0] == snapshot]
        for name in names:
            del contents.buckets[name]
        del contents.metas[snapshot], contents.states[snapshot]
        return len(names)

    def _why_not_retired(self, snapshot: str, *, force: bool) -> str | None:
        state = self.contents.states.get(snapshot)
        if state is None:
            return "missing"
        if self.contents.pointer is not None and self.contents.pointer[0] == snapshot:
            return "active"
        return state.value if state in {SnapshotState.HELD, SnapshotState.WRITING} and not force else None

    def _flip(self, snapshot: str, lease: Lease, *, by: str, action: str, forced: bool) -> Flip:
        contents = self.contents
        contents.answer()
        refusal = self._why_not_promoted(snapshot, lease, forced=forced)
        if refusal is not None:
            raise refusals.not_promoted(refusal, snapshot, lease)
        at = int(contents.clock.now())
        flip = Flip(snapshot=snapshot, at=at, by=by, action=action, forced=forced, epoch=lease.epoch)
        contents.states[snapshot] = SnapshotState.READY
        contents.pointer = (snapshot, lease.epoch)
        contents.history.appendleft(flip)
        return flip

    def _why_not_promoted(self, snapshot: str, lease: Lease, *, forced: bool) -> str | None:
        if not self.contents.holds(lease):
            return "fenced"
        state = self.contents.states.get(snapshot)
        if state is None:
            return "missing"
        allowed = {SnapshotState.READY, SnapshotState.HELD} if forced else {SnapshotState.READY}
        return None if state in allowed else state.value


class _Leases(_Part):
    def acquire(self, holder: str, seconds: float, *, instead_of: str | None = None) -> Lease:
        contents = self.contents
        present = self.holder()
        if present is not None and present != instead_of:
            raise refusals.lease_held(present)
        contents.epoch += 1
        lease = Lease(token=str(next(contents.tokens)), holder=holder, epoch=contents.epoch, seconds=seconds)
        contents.lease = (lease, contents.clock.now() + seconds)
        return lease

    def holder(self) -> str | None:
        contents = self.contents
        contents.answer()
        return contents.lease[0].holder if contents.lease is not None and contents.holds(contents.lease[0]) else None

    def renew(self, lease: Lease) -> None:
        self.contents.answer()
        if not self.contents.holds(lease):
            raise refusals.fenced(lease)
        self.contents.lease = (lease, self.contents.clock.now() + lease.seconds)

    def release(self, lease: Lease) -> None:
        self.contents.answer()
        if self.contents.holds(lease):
            self.contents.lease = None
