"""How scores lie in the store: every key, and the packed value.

A snapshot is spread over hashes ("buckets") of about 48 entities, so that each stays one compact listpack. In a bucket
the field is the entity id and the value is packed::

    scored      format | flags | scored_at   | score   | score   | ...
                uint8  | uint8 | uint32 LE   | float32 LE, one for each output column
    rejected    format | flags | scored_at   | code    | position of the field in the schema, 65535: none
                uint8  | uint8 | uint32 LE   | uint8   | uint16 LE

Each bucket also holds a marker under the empty name, which no entity can have. It tells "the bucket is whole and does
not have this entity" from "the bucket is gone" in the one command that reads the entity.

The keys that decide (pointer, lease, epoch, history, metadata) share the hash tag ``{model}``, so that a script may use
them together on a cluster. Buckets and features carry no tag, so that they spread over it. No key is found by scanning.
"""

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shared.codes import Code
from shared.errors import SettingsError
from shared.snapshot import ENTITIES_PER_BUCKET, Found, KnownRejected, Lookup, Lost
from shared.texts import Bytes, Texts

FORMAT = 1
ONLINE = 0b01
REJECTED = 0b10
NO_FIELD = 0xFFFF
MARKER_FIELD = b""
MARKER_VALUE = b"1"


_FOLDED_ROWS = 1 << 14
_HEAD = struct.Struct("<BBI")
_REJECTION = struct.Struct("<BBIBH")
_MODEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_CODES = frozenset(int(code) for code in Code)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one model. The examples are those of ``Keys("fs", "churn")``."""

    namespace: str
    model: str

    def __post_init__(self) -> None:
        if not _MODEL.fullmatch(self.model):
            raise SettingsError(
                f"model {self.model[:64]!r}: a name has 1 to 64 of a-z, 0-9, '-' and '_', a letter or digit first"
            )

    def active(self) -> str:
        """Hash of the pointer (snapshot, epoch, at): ``fs:{churn}:active``."""
        return self._control("active")

    def epoch(self) -> str:
        """Counter of leases, the fencing epoch: ``fs:{churn}:epoch``."""
        return self._control("epoch")

    def lease(self) -> str:
        """Text ``token holder`` that expires: ``fs:{churn}:lease``."""
        return self._control("lease")

    def history(self) -> str:
        """List of flips, newest first: ``fs:{churn}:history``."""
        return self._control("history")

    def snapshots(self) -> str:
        """Hash, snapshot -> metadata as JSON: ``fs:{churn}:snapshots``."""
        return self._control("snapshots")

    def states(self) -> str:
        """Hash, snapshot -> state: ``fs:{churn}:states``."""
        return self._control("states")

    def versions(self) -> str:
        """Hash, model version -> bundle digest: ``fs:{churn}:versions``."""
        return self._control("versions")

    def bucket(self, snapshot: str, bucket: int) -> str:
        """Hash, entity id -> packed value: ``fs:churn:s:2026.11.1-01J8Z3V5QW9XKD2M7R4T6Y8B0C:17``."""
        return f"{self.bucket_prefix(snapshot)}{bucket}"

    def bucket_prefix(self, snapshot: str) -> str:
        """What the keys of a snapshot's buckets share: ``fs:churn:s:2026.11.1-01J8Z3V5QW9XKD2M7R4T6Y8B0C:``."""
        return f"{self.namespace}:{self.model}:s:{snapshot}:"

    def features(self, entity_id: str) -> str:
        """The features of an entity that the batch has not seen: ``fs:churn:f:C0042``."""
        return f"{self.namespace}:{self.model}:f:{entity_id}"

    def _control(self, name: str) -> str:
        return f"{self.namespace}:{{{self.model}}}:{name}"


def models_key(namespace: str) -> str:
    """Set of the models that have snapshots: ``fs:models``."""
    return f"{namespace}:models"


def rates_key(namespace: str) -> str:
    """What the keys of rate limits begin with, where the store counts them: ``fs:rate``."""
    return f"{namespace}:rate"


def buckets_for(entities: int) -> int:
    """How many buckets a snapshot of so many entities has; at least one, so that an empty snapshot exists too."""
    return max(1, math.ceil(entities / ENTITIES_PER_BUCKET))


def bucket_of(entity_id: str, buckets: int) -> int:
    """The bucket of an entity: CRC-32 of its UTF-8 bytes, modulo the number of buckets."""
    return crc32(entity_id.encode()) % buckets


def buckets_of(ids: pa.Array, buckets: int) -> npt.NDArray[np.uint32]:
    """``bucket_of`` for a column of texts without nulls: uint32 [rows]."""
    return crc32_column(ids) % np.uint32(buckets)


def crc32_column(column: pa.Array) -> npt.NDArray[np.uint32]:
    """CRC-32 (ISO 3309, as in zlib) of each text or value of a column without nulls: uint32 [rows]."""
    texts = Texts.of(column)
    folded = np.empty(len(texts), np.uint32)
    for size in np.unique(texts.sizes).tolist():
        rows = np.flatnonzero(texts.sizes == size)
        matrix = texts.matrix(None if len(rows) == len(texts) else rows, size)
        for first in range(0, len(rows), _FOLDED_ROWS):  # blocks that stay in the processor's cache
            folded[rows[first : first + _FOLDED_ROWS]] = _crc32(matrix[first : first + _FOLDED_ROWS])
    return folded


def pack_scores(scores: Sequence[float], *, scored_at: int, online: bool = False) -> bytes:
    """The value of a scored entity: one float32 for each output column."""
    head = _HEAD.pack(FORMAT, ONLINE if online else 0, scored_at)
    return head + struct.pack(f"<{len(scores)}f", *scores)


def pack_rejection(code: Code, field: int | None, *, scored_at: int) -> bytes:
    """The value of an entity that the batch knows and could not score; ``field`` is a position in the schema."""
    return _REJECTION.pack(FORMAT, REJECTED, scored_at, code, NO_FIELD if field is None else field)


def pack_columns(
    scores: npt.NDArray[np.float32],
    *,
    scored_at: int,
    codes: npt.NDArray[np.uint8] | None = None,
    fields: npt.NDArray[np.uint16] | None = None,
) -> pa.BinaryArray:
    """The values of many entities at once, equal byte for byte to the one-row functions.

    ``scores`` is float32 [rows, columns]; ``codes`` uint8 [rows] is 0 where the entity was scored, else why it was not
    (its row of ``scores`` is then not looked at); ``fields`` uint16 [rows] is read beside it, ``NO_FIELD`` for none.
    """
    rows, columns = scores.shape
    scored = _scored_matrix(scores, scored_at)
    if codes is None or not codes.any():
        offsets = np.arange(rows + 1, dtype=np.int64) * scored.shape[1]
        return _binary(offsets, scored.reshape(-1))
    is_rejected = codes != 0
    blamed = np.full(rows, NO_FIELD, dtype=np.uint16) if fields is None else fields
    rejected = _rejected_matrix(codes[is_rejected], blamed[is_rejected], scored_at)
    sizes = np.where(is_rejected, _REJECTION.size, _HEAD.size + 4 * columns)
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
    data = np.empty(offsets[-1], dtype=np.uint8)
    _scatter(data, offsets[:-1][~is_rejected], scored[~is_rejected])
    _scatter(data, offsets[:-1][is_rejected], rejected)
    return _binary(offsets, data)


def sizes(columns: int) -> tuple[int, int]:
    """How many bytes the value of a scored and of a rejected entity has."""
    return _HEAD.size + 4 * columns, _REJECTION.size


def unpack(value: bytes, columns: int, fields: Sequence[str]) -> Lookup:
    """What a value says; ``Lost`` where it is not one of ours: another format, length, code, or a score not finite."""
    if len(value) < _HEAD.size or value[0] != FORMAT or value[1] & ~(ONLINE | REJECTED):
        return Lost("corrupt")
    if value[1] & REJECTED:
        return _unpack_rejection(value, fields)
    layout = scored_struct(columns)
    if len(value) != layout.size:
        return Lost("corrupt")
    _, flags, scored_at, *scores = layout.unpack(value)
    if not all(map(math.isfinite, scores)):
        return Lost("corrupt")
    return Found(scores=tuple(scores), scored_at=scored_at, online=bool(flags & ONLINE))


def _unpack_rejection(value: bytes, fields: Sequence[str]) -> Lookup:
    if len(value) != _REJECTION.size:
        return Lost("corrupt")
    _, _, scored_at, code, field = _REJECTION.unpack(value)
    if code not in _CODES or (field != NO_FIELD and field >= len(fields)):
        return Lost("corrupt")
    return KnownRejected(code=Code(code), field=None if field == NO_FIELD else fields[field], scored_at=scored_at)


@lru_cache
def scored_struct(columns: int) -> struct.Struct:
    return struct.Struct(f"<BBI{columns}f")


def _scored_matrix(scores: npt.NDArray[np.float32], scored_at: int) -> npt.NDArray[np.uint8]:
    rows, columns = scores.shape
    matrix = np.empty((rows, _HEAD.size + 4 * columns), dtype=np.uint8)
    matrix[:, : _HEAD.size] = np.frombuffer(_HEAD.pack(FORMAT, 0, scored_at), dtype=np.uint8)
    matrix[:, _HEAD.size :] = np.ascontiguousarray(scores, dtype="<f4").view(np.uint8).reshape(rows, 4 * columns)
    return matrix


def _rejected_matrix(
    codes: npt.NDArray[np.uint8], fields: npt.NDArray[np.uint16], scored_at: int
) -> npt.NDArray[np.uint8]:
    rows = len(codes)
    matrix = np.empty((rows, _REJECTION.size), dtype=np.uint8)
    matrix[:, : _HEAD.size] = np.frombuffer(_HEAD.pack(FORMAT, REJECTED, scored_at), dtype=np.uint8)
    matrix[:, _HEAD.size] = codes
    matrix[:, _HEAD.size + 1 :] = fields.astype("<u2").view(np.uint8).reshape(rows, 2)
    return matrix


def _scatter(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], matrix: npt.NDArray[np.uint8]) -> None:
    data[starts[:, None] + np.arange(matrix.shape[1])] = matrix


def _binary(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError("one batch of values has more than 2 GiB: pack smaller batches")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


@lru_cache
def _crc32_tables() -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """What a byte, and what two bytes make of the checksum's lowest ones: uint32 [256] and [65,536]."""
    one = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        one = np.where(one & 1, (one >> 1) ^ np.uint32(0xEDB88320), one >> 1).astype(np.uint32)
    pairs = np.arange(1 << 16, dtype=np.uint32)
    after = one[pairs & 0xFF] ^ (pairs >> 8)
    return one, one[after & 0xFF] ^ (after >> 8)


def _crc32(matrix: Bytes) -> npt.NDArray[np.uint32]:
    """Of each row of uint8 [rows, size]: two bytes at a time, which takes half as long as one by one."""
    one, two = _crc32_tables()
    even = matrix.shape[1] // 2 * 2
    crc = np.full(len(matrix), 0xFFFFFFFF, np.uint32)
    for pair in np.ascontiguousarray(matrix[:, :even]).view("<u2").T:
        low = crc.astype(np.uint16) ^ pair
        crc >>= np.uint32(16)
        crc ^= two.take(low)
    for byte in matrix[:, even:].T:
        crc = one.take(crc.astype(np.uint8) ^ byte) ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)
