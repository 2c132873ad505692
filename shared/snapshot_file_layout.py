"""How a snapshot lies in a file of its own, ``snapshot.arrow``: an Arrow IPC file, uncompressed, to be memory-mapped.

The rows are sorted by where the store has them, so that they need be sorted once for both, and are found by binary
search. They lie in batches of equal size::

    hash    uint64   the entity's bucket in the store, and CRC-32 of the id's UTF-8 bytes in the low half
    id      binary   the entity id
    value   binary   the packed value, as it lies in the store (``shared.layout``)
    check   uint32   CRC-32 of the value, exclusive-or the low half of the hash

``hash`` binds a row to its id and ``check`` a value to its row: bytes that changed on the disk are known as such, and
are never another entity's score. Rows of one hash are sorted by their ids. Each batch carries its ``number``. The last
one has no rows and the ``seal``: how many rows there are, the sha256 of all bytes before it, and of the metadata, which
is the snapshot's own.

Hashes where there are 1000 buckets: ``"C0042"`` 37a7ecc6ac2, ``"foobar"`` 459ef61f95, ``"ä"`` 2370b5f183.
"""

import hashlib
from typing import Self
from zlib import crc32

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from shared.layout import crc32_column
from shared.snapshot import SnapshotMeta

FILE = "snapshot.arrow"
NEXT = "snapshot.next.arrow"
"""Under which it waits for its snapshot to be promoted."""
PATTERN = "*/snapshot*.arrow"
"""Both, in the folder of all runs."""
FORMAT = b"2"
BATCH_ROWS = 1 << 17
"""About 5 MB: what is in memory while a file is written, and so few batches that all of them are found quickly."""

_LOW_BITS = 32
_LOW = (1 << _LOW_BITS) - 1
_FORMAT_KEY, _META_KEY = b"forescore.format", b"forescore.snapshot"
NUMBER_KEY, SEAL_KEY = b"number", b"seal"
_FIELDS = (("hash", pa.uint64()), ("id", pa.binary()), ("value", pa.binary()), ("check", pa.uint32()))
COLUMNS = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _FIELDS])


class Seal(BaseModel):
    """The last word of a file. ``rows`` and ``batch_rows`` are counts, ``size`` the bytes before the seal, ``sha256``
    theirs; ``head`` proves these numbers and the snapshot's metadata, which are read without the rest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int = Field(ge=0)
    batch_rows: int = Field(ge=1)
    size: int
    sha256: str
    head: str

    @classmethod
    def of(cls, head: bytes, *, rows: int, batch_rows: int, size: int, sha256: str) -> Self:
        """The seal of a file with the metadata ``head``."""
        return cls(
            rows=rows,
            batch_rows=batch_rows,
            size=size,
            sha256=sha256,
            head=_digest(head, rows, batch_rows, size, sha256),
        )

    def holds(self, head: bytes) -> bool:
        """Whether it is the seal of a file with that metadata."""
        return self.head == _digest(head, self.rows, self.batch_rows, self.size, self.sha256)

    @property
    def batches(self) -> int:
        """How many batches have rows."""
        return -(-self.rows // self.batch_rows)

    def rows_of(self, batch: int) -> int:
        """How many rows a batch has: all as many, but the last."""
        return min(self.batch_rows, self.rows - batch * self.batch_rows)

    def to_json(self) -> bytes:
        return orjson.dumps(self.model_dump())


def hash_of(entity_id: bytes, buckets: int) -> int:
    """By what a row is found in the file of a snapshot with so many buckets."""
    folded = crc32(entity_id)
    return folded % buckets << _LOW_BITS | folded


def hashes_of(ids: pa.Array, buckets: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """``hash_of`` for a column of texts without nulls and the bucket of each: uint64 [rows]."""
    return buckets.astype(np.uint64) << np.uint64(_LOW_BITS) | crc32_column(ids)


def check_of(value: bytes, of: int) -> int:
    """What stands beside the value of the row whose id has the hash ``of``."""
    return crc32(value) ^ (of & _LOW)


def checks_of(values: pa.Array, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """``check_of`` for columns: uint32 [rows]."""
    return crc32_column(values) ^ (hashes & np.uint64(_LOW)).astype(np.uint32)


def schema_of(meta: SnapshotMeta) -> pa.Schema:
    """The columns, with the snapshot's metadata."""
    return COLUMNS.with_metadata({_FORMAT_KEY: FORMAT, _META_KEY: meta.to_json()})


def head_of(schema: pa.Schema) -> bytes | None:
    """The snapshot's metadata as text; None if the file is of another kind."""
    told = schema.metadata or {}
    if not schema.equals(COLUMNS) or told.get(_FORMAT_KEY) != FORMAT:
        return None
    head: bytes | None = told.get(_META_KEY)
    return head


def _digest(*told: bytes | int | str) -> str:
    return hashlib.sha256(b" ".join(one if isinstance(one, bytes) else str(one).encode() for one in told)).hexdigest()
