"""The file of a snapshot, to look entities up in: opened in the time that its footer takes, however large it is.

What it says is proved each time. A score is answered if its row's hash is that of the id, and its check that of the
value. An entity is absent if the rows on both sides of its place prove themselves. Everything else is ``Lost``: so
bytes that changed on the disk cost the entities that they belong to, and nobody is told another one's score.

Reading is blocking: of the hashes through the mapping, of rows with ``pread``, both without Python's lock, so that a
slow disk holds up the thread that asks and no other.
"""

import hashlib
import os
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shared.errors import SnapshotFileCorrupt
from shared.layout import unpack
from shared.snapshot import Absent, Lookup, Lost, SnapshotMeta
from shared.snapshot_file_layout import NUMBER_KEY, SEAL_KEY, Seal, check_of, hash_of, head_of

CORRUPT = Lost("corrupt")
_BROKEN = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError)
"""What reading bytes that changed raises."""
_OFFSET = np.dtype("<i4")
_READ_BYTES = 1 << 20
_MOST_BYTES = 1 << 16
"""No id and no value is longer; an offset that changed must not become a gigabyte read."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, as it lies there."""

    hash: int
    id: bytes
    value: bytes
    check: int

    def is_whole(self, buckets: int) -> bool:
        """Whether the hash is the id's and the check the value's."""
        return self.hash == hash_of(self.id, buckets) and self.check == check_of(self.value, self.hash)


class Batch:
    """One batch of rows: where its columns lie in the file."""

    def __init__(self, columns: Sequence[pa.Array], rows: int, base: int, descriptor: int) -> None:
        """ValueError if a column is shorter than the rows, or not in the mapping that begins at ``base``."""
        hashes, ids, values, checks = (column.buffers() for column in columns)
        self.hashes: npt.NDArray[np.uint64] = np.frombuffer(hashes[1], np.dtype("<u8"), rows)
        self._descriptor = descriptor
        self._checks = _placed(checks[1], 4 * rows, base)
        self._texts = [(_placed(one[1], 4 * (rows + 1), base), *_span(one[2], base)) for one in (ids, values)]
        self.first = int.from_bytes(self._read(_placed(hashes[1], 8, base), 8), "little")

    def row(self, position: int) -> Row:
        """ValueError if it does not lie within its columns."""
        entity_id, value = (self._text(*one, position) for one in self._texts)
        check = int.from_bytes(self._read(self._checks + 4 * position, 4), "little")
        return Row(int(self.hashes[position]), entity_id, value, check)

    def _text(self, offsets: int, start: int, size: int, position: int) -> bytes:
        first, last = np.frombuffer(self._read(offsets + 4 * position, 8), _OFFSET).tolist()
        if not 0 <= first <= last <= min(size, first + _MOST_BYTES):
            raise ValueError("a text outside of its column")
        return self._read(start + first, last - first)

    def _read(self, at: int, size: int) -> bytes:
        found = os.pread(self._descriptor, size, at)
        if len(found) != size:
            raise ValueError("the file is shorter than it was")
        return found


class SnapshotFile:
    """An open file. ``meta``: the snapshot's metadata; ``rows``: how many entities it has."""

    def __init__(self, descriptor: int, mapping: pa.MemoryMappedFile, meta: SnapshotMeta, seal: Seal) -> None:
        self.meta = meta
        self.rows = seal.rows
        self.sha256 = seal.sha256
        self._seal = seal
        self._descriptor = descriptor
        self._mapping = mapping
        mapping.seek(0)
        self._base = mapping.read_buffer().address
        self._reader = pa.ipc.open_file(mapping)
        self._batches: dict[int, Batch] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing may be looked up any more."""
        self._batches.clear()
        self._mapping.close()
        os.close(self._descriptor)

    def lookup(self, ids: Sequence[str]) -> list[Lookup]:
        """One answer for each id, in order; ``Lost`` where the file cannot tell."""
        return [self._look_up(entity_id.encode()) for entity_id in ids]

    def is_unchanged(self) -> bool:
        """Whether all bytes are those that were written: it reads all of them."""
        found, at = hashlib.sha256(), 0
        while block := os.pread(self._descriptor, min(self._seal.size - at, _READ_BYTES), at):
            found.update(block)
            at += len(block)
        return found.hexdigest() == self._seal.sha256

    def _look_up(self, entity_id: bytes) -> Lookup:
        try:
            return self._found(entity_id, hash_of(entity_id, self.meta.buckets))
        except _BROKEN:
            return CORRUPT

    def _found(self, entity_id: bytes, wanted: int) -> Lookup:
        first = place = self._place(wanted)
        while place < self.rows:
            row = self._row(place)
            if not row.is_whole(self.meta.buckets) or row.hash < wanted:
                return CORRUPT
            if row.hash > wanted:
                break
            if row.id == entity_id:
                return unpack(row.value, len(self.meta.columns), self.meta.fields)
            place += 1
        if first > 0 and not ((before := self._row(first - 1)).is_whole(self.meta.buckets) and before.hash < wanted):
            return CORRUPT
        return Absent()

    def _place(self, wanted: int) -> int:
        """The first row whose hash is not below."""
        after = bisect_left(range(self._seal.batches), wanted, key=lambda number: self._batch(number).first)
        if after == 0:
            return 0
        hashes = self._batch(after - 1).hashes
        return (after - 1) * self._seal.batch_rows + int(hashes.searchsorted(np.uint64(wanted)))

    def _row(self, place: int) -> Row:
        number, position = divmod(place, self._seal.batch_rows)
        return self._batch(number).row(position)

    def _batch(self, number: int) -> Batch:
        """Looked at when it is first needed: opening a file costs the same however many it has."""
        if number not in self._batches:
            batch, told = self._reader.get_batch_with_custom_metadata(number)
            rows = self._seal.rows_of(number)
            if batch.num_rows != rows or told is None or told[NUMBER_KEY] != b"%d" % number:
                raise ValueError("another batch than was written in that place")
            self._batches[number] = Batch(batch.columns, rows, self._base, self._descriptor)
        return self._batches[number]


def open_snapshot_file(path: Path) -> SnapshotFile:
    """Opens it; SnapshotFileCorrupt if it cannot be read, or is none, or is not whole."""
    with ExitStack() as stack:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            mapping = stack.enter_context(pa.memory_map(str(path)))
            meta, seal = _checked(pa.ipc.open_file(mapping))
            opened = SnapshotFile(descriptor, mapping, meta, seal)
        except FileNotFoundError:
            raise SnapshotFileCorrupt(f"{path}: there is no such file; publishing the run again writes it") from None
        except _BROKEN:
            raise SnapshotFileCorrupt(
                f"{path}: cannot be read as the file of a snapshot; remove it, and publish its run again"
            ) from None
        stack.pop_all()
    return opened


def _checked(reader: pa.RecordBatchFileReader) -> tuple[SnapshotMeta, Seal]:
    """The metadata and the seal, proved; ValueError if they do not fit."""
    head = head_of(reader.schema)
    _, told = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
    if head is None or told is None:
        raise ValueError("no file of a snapshot")
    seal = Seal.model_validate_json(told[SEAL_KEY])
    if not seal.holds(head) or reader.num_record_batches != seal.batches + 1:
        raise ValueError("not the seal of that file")
    return SnapshotMeta.model_validate_json(head), seal


def _span(buffer: pa.Buffer | None, base: int) -> tuple[int, int]:
    """Where in the file a buffer lies, and how many bytes it has; one of no bytes may not be there."""
    return (0, 0) if buffer is None else (buffer.address - base, buffer.size)


def _placed(buffer: pa.Buffer | None, size: int, base: int) -> int:
    """Where in the file a buffer lies. ValueError if it has not so many bytes, or is a copy of what lies there."""
    start, found = _span(buffer, base)
    if start < 0 or found < size:
        raise ValueError("fewer values than rows")
    return start
