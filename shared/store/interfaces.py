"""What can be asked of a store. The memory store and the real one pass the same contract suite."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shared.snapshot import Absent, Active, Flip, Lease, Listed, Lookup, Lost, SnapshotMeta, SnapshotState
from shared.store.breaker import CircuitBreaker


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBatch:
    """Entities of one snapshot, sorted by bucket.

    ``ids``: text column without nulls; ``buckets``: uint32 [rows], ascending; ``values``: the packed values, binary
    column without nulls (``layout.pack_columns``).
    """

    ids: pa.Array
    buckets: npt.NDArray[np.uint32]
    values: pa.Array

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.buckets) == len(self.values):
            raise ValueError("a batch needs as many buckets and values as ids")
        if self.ids.null_count or self.values.null_count:
            raise ValueError("a batch has no nulls")
        if len(self.ids) and pc.min(pc.binary_length(self.ids)).as_py() == 0:
            raise ValueError("an empty id is the bucket's marker, and no entity")
        if (self.buckets[1:] < self.buckets[:-1]).any():
            raise ValueError("a batch is sorted by bucket")

    def __len__(self) -> int:
        return len(self.ids)


class Peeker(Protocol):
    """Who waits for one entity's value. One of the two is called, from the event loop."""

    def found(self, value: bytes | Absent | Lost) -> None: ...

    def failed(self) -> None:
        """The store did not answer, or with a refusal; ``peek`` would say with which."""
        ...


class SnapshotReader(Protocol):
    """What serves requests. Every method raises StoreDown or StoreRefused within the read timeout."""

    async def active(self) -> Active | None:
        """The pointer with its snapshot's metadata, in one round trip; StoreCorrupt if they do not fit together."""
        ...

    async def lookup(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        """One answer for each id, in order, in one round trip however many there are."""
        ...

    async def peek(self, meta: SnapshotMeta, entity_id: bytes) -> bytes | Absent | Lost:
        """One entity's packed value as it lies there, not yet looked into, in the least time. The id is UTF-8."""
        ...

    def peek_for(self, meta: SnapshotMeta, entity_id: bytes, peeker: Peeker) -> bool:
        """As ``peek``, without a task or a future for each. False: it cannot be asked so just now, and was not."""
        ...

    async def snapshots(self) -> list[Listed]:
        """All that are resident, newest first."""
        ...

    async def ping(self) -> None:
        """Returns if the store answers."""
        ...


@dataclass(frozen=True, slots=True)
class OnlineScore:
    """The scores of one entity, computed online: one for each of the snapshot's columns."""

    entity_id: str
    scores: Sequence[float]
    scored_at: int


class OnlineWriter(Protocol):
    async def write_back(self, meta: SnapshotMeta, scores: Sequence[OnlineScore]) -> list[bool]:
        """Adds online scores to a snapshot, in one round trip however many there are.

        False for those whose bucket is not there (retired, lost): nothing was written of them.
        """
        ...


class FeatureStore(Protocol):
    async def read(self, ids: Sequence[str]) -> list[bytes | None]:
        """The payload of each id, in order, in one round trip."""
        ...

    async def write(self, entity_id: str, payload: bytes, ttl_seconds: int) -> None: ...

    async def delete(self, entity_id: str) -> None:
        """Nothing happens if there are none."""
        ...


class FeatureWriter(Protocol):
    def write_many(self, rows: Iterable[tuple[str, bytes]], ttl_seconds: int) -> int:
        """Writes ids with their payloads, slab by slab as they come, and returns how many."""
        ...


class SnapshotWriter(Protocol):
    def begin(self, meta: SnapshotMeta) -> None:
        """Registers the snapshot as being written.

        Again for the same run is fine; SnapshotError if another run has the snapshot.
        """
        ...

    def fill(self, meta: SnapshotMeta, batches: Iterable[PublishBatch]) -> int:
        """Writes all of the snapshot, makes the buckets exist that no entity is in, and returns the entities; writing
        again changes nothing.

        A batch is taken before those that came before it are known to be written; in the end all are. A bucket that no
        batch has reached is gone to readers, and is not taken for one without their entity.
        """
        ...

    def count(self, meta: SnapshotMeta) -> int:
        """How many entities the store holds for the snapshot."""
        ...

    def read(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        """The same as the reader's ``lookup``, with a writer's patience."""
        ...

    def read_buckets(self, meta: SnapshotMeta, buckets: range) -> PublishBatch:
        """All that lies in these buckets, the values as they are; StoreCorrupt if one of them is gone."""
        ...

    def replace(self, meta: SnapshotMeta, batch: PublishBatch) -> int:
        """Writes the batch into the buckets that are there, and only there; a reader sees old or new, entity by entity.

        Returns how many entities found their bucket; writing it again changes nothing.
        """
        ...


class Catalogue(Protocol):
    def claim(self, version: str, bundle_digest: str) -> None:
        """Binds the model version to the bundle; BundleConflict if it is bound to another one."""
        ...

    def active(self) -> Active | None: ...

    def snapshots(self) -> list[Listed]: ...

    def history(self) -> list[Flip]:
        """The last 100 flips of the pointer, newest first."""
        ...


class Control(Protocol):
    def promote(self, snapshot: str, lease: Lease, *, by: str, forced: bool = False) -> Flip:
        """Flips the pointer. SnapshotNotFound; SnapshotNotReady; SnapshotHeld unless forced; Fenced."""
        ...

    def rollback(self, lease: Lease, *, by: str) -> Flip:
        """Flips the pointer back along the history; SnapshotNotFound if nothing before it is left."""
        ...

    def mark(self, snapshot: str, state: SnapshotState) -> None: ...

    def update(self, meta: SnapshotMeta) -> None:
        """Writes a snapshot's metadata anew; SnapshotNotFound."""
        ...

    def amend(self, meta: SnapshotMeta, lease: Lease) -> None:
        """Writes the active snapshot's metadata anew: Fenced if the lease was lost, SnapshotNotFound if the snapshot is
        not active any more."""
        ...

    def retire(self, snapshot: str, *, force: bool = False) -> int:
        """Removes a snapshot and returns how many keys that were; repeating it after a crash finishes it.

        Refused with SnapshotError for the active one, and unless forced for one held for review or half-written.
        """
        ...


class Leases(Protocol):
    def acquire(self, holder: str, seconds: float, *, instead_of: str | None = None) -> Lease:
        """LeaseHeld names the holder, unless it is the one that is replaced, because it is known to be dead."""
        ...

    def holder(self) -> str | None:
        """Who holds it just now."""
        ...

    def renew(self, lease: Lease) -> None:
        """Fenced if it has passed to somebody else, or lapsed."""
        ...

    def release(self, lease: Lease) -> None:
        """Gives it back; nothing happens if it is not ours any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One model's store, as the batch job and the commands see it."""

    writer: SnapshotWriter
    catalogue: Catalogue
    control: Control
    leases: Leases
    features: FeatureWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncStore:
    """One model's store, as the service sees it. ``breaker`` is shared by all parts; its state is a metric."""

    reader: SnapshotReader
    online: OnlineWriter
    features: FeatureStore
    breaker: CircuitBreaker
