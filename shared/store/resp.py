r"""A batch as protocol bytes, built column-wise: one HSET for each bucket, never a Python object for each entity.

The Redis protocol (https://redis.io/docs/latest/develop/reference/protocol-spec/) writes a command as
``*<arguments>\r\n`` and each argument as ``$<bytes>\\r\\n<text>\r\n``. Arrow's kernels join ids and values into one
buffer in that form; a command is then a header and a slice of it.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shared.layout import MARKER_FIELD, MARKER_VALUE
from shared.store.interfaces import PublishBatch

PAIRS = 64
"""The most entities of one command, so that no command keeps the server from its readers for long."""


def argument(text: bytes) -> bytes:
    """One argument of a command."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


_HSET = argument(b"HSET")
_MARKER = argument(MARKER_FIELD) + argument(MARKER_VALUE)


def runs(buckets: npt.NDArray[np.uint32]) -> Iterator[tuple[int, int, int]]:
    """The stretches of equal buckets, none longer than ``PAIRS``: (bucket, first row, row behind the last)."""
    edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
    for start, stop in pairwise(edges):
        for first in range(start, stop, PAIRS):
            yield int(buckets[start]), first, min(first + PAIRS, stop)


def slabs(batch: PublishBatch, key_prefix: str, slab_bytes: int) -> Iterator[tuple[bytes, int]]:
    """The batch as (bytes, commands in them), each about ``slab_bytes`` long. A key is the prefix and the bucket.

    Every command writes the bucket's marker too, so that a bucket that was lost meanwhile is whole again.
    """
    offsets, data = _pairs(batch)
    prefix = key_prefix.encode()
    pieces: list[bytes | memoryview] = []
    size = commands = 0
    for bucket, first, stop in runs(batch.buckets):
        head = b"*%d\r\n%b%b%b" % (4 + 2 * (stop - first), _HSET, argument(prefix + b"%d" % bucket), _MARKER)
        body = data[offsets[first] : offsets[stop]]
        pieces += (head, body)
        size += len(head) + len(body)
        commands += 1
        if size >= slab_bytes:
            yield b"".join(pieces), commands
            pieces, size, commands = [], 0, 0
    if commands:
        yield b"".join(pieces), commands


def _pairs(batch: PublishBatch) -> tuple[list[int], memoryview]:
    """For all entities ``$len id $len value``, one after the other, and where each begins."""
    joined = pc.binary_join_element_wise(*_argument_parts(batch.ids), *_argument_parts(batch.values), _mark(b""))
    offsets = np.frombuffer(joined.buffers()[1], dtype=np.int64)[joined.offset : joined.offset + len(joined) + 1]
    data = joined.buffers()[2]
    return offsets.tolist(), memoryview(data if data is not None else b"")


def _argument_parts(column: pa.Array) -> list[pa.Array | pa.Scalar]:
    text = column.cast(pa.large_binary())
    sizes = pc.binary_length(text).cast(pa.large_string()).cast(pa.large_binary())
    return [_mark(b"$"), sizes, _mark(b"\r\n"), text, _mark(b"\r\n")]


def _mark(text: bytes) -> pa.Scalar:
    return pa.scalar(text, pa.large_binary())
