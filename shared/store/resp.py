r"""Commands as protocol bytes, built column-wise: never a Python object for each entity.

The Redis protocol (https://redis.io/docs/latest/develop/reference/protocol-spec/) writes a command as
``*<arguments>\r\n`` and each argument as ``$<bytes>\\r\\n<text>\r\n``. Entities whose ids are of one length, and whose
values are, differ in nothing else: their bytes are a matrix, filled a column of fields at a time. A command is then a
header and a slice of it.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from shared.layout import MARKER_FIELD, MARKER_VALUE
from shared.store.interfaces import PublishBatch
from shared.texts import Bytes, Numbers, Texts

PAIRS = 64
"""The most entities of one command, so that no command keeps the server from its readers for long."""

Slab = tuple[bytes, int]
"""Bytes that go out together, and how many commands they are."""


def argument(text: bytes) -> bytes:
    """One argument of a command."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


_HSET = argument(b"HSET")
_HLEN = argument(b"HLEN")
_MARKER = argument(MARKER_FIELD) + argument(MARKER_VALUE)


def runs(buckets: npt.NDArray[np.uint32]) -> Iterator[tuple[int, int, int]]:
    """The stretches of equal buckets, none longer than ``PAIRS``: (bucket, first row, row behind the last)."""
    edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
    for start, stop in pairwise(edges):
        for first in range(start, stop, PAIRS):
            yield int(buckets[start]), first, min(first + PAIRS, stop)


def slabs(batch: PublishBatch, key_prefix: str, slab_bytes: int) -> Iterator[Slab]:
    """HSETs of the batch, each slab about ``slab_bytes`` long. A key is the prefix and the bucket.

    Every command writes the bucket's marker too, so that a bucket that was lost meanwhile is whole again.
    """
    offsets, data = _pairs(Texts.of(batch.ids), Texts.of(batch.values))
    prefix = key_prefix.encode()
    pieces: list[bytes | memoryview] = []
    size = commands = 0
    for bucket, first, stop in runs(batch.buckets):
        head = b"*%d\r\n%b%b%b" % (4 + 2 * (stop - first), _HSET, argument(b"%b%d" % (prefix, bucket)), _MARKER)
        body = data[offsets[first] : offsets[stop]]
        pieces += (head, body)
        size += len(head) + len(body)
        commands += 1
        if size >= slab_bytes:
            yield b"".join(pieces), commands
            pieces, size, commands = [], 0, 0
    if commands:
        yield b"".join(pieces), commands


def markers(key_prefix: str, buckets: Iterable[int]) -> Slab:
    """HSETs of the marker alone, which make the buckets exist."""
    return _each(b"*4\r\n" + _HSET, key_prefix, buckets, _MARKER)


def lengths(key_prefix: str, buckets: Iterable[int]) -> Slab:
    """HLENs, which count the fields of the buckets."""
    return _each(b"*2\r\n" + _HLEN, key_prefix, buckets, b"")


def _each(head: bytes, key_prefix: str, buckets: Iterable[int], tail: bytes) -> Slab:
    prefix = key_prefix.encode()
    commands = [b"%b%b%b" % (head, argument(b"%b%d" % (prefix, bucket)), tail) for bucket in buckets]
    return b"".join(commands), len(commands)


def _pairs(ids: Texts, values: Texts) -> tuple[list[int], memoryview]:
    """For all entities ``$len id $len value``, one after the other, and where each begins."""
    if _are_equal(ids.sizes) and _are_equal(values.sizes):
        shape = int(ids.sizes[0]), int(values.sizes[0])
        offsets = np.arange(len(ids) + 1) * len(_template(*shape))
        return offsets.tolist(), _records(ids, values, None, *shape).reshape(-1).data
    shapes, which = np.unique((ids.sizes << np.int64(32)) | values.sizes, return_inverse=True)
    sizes = [(int(shape) >> 32, int(shape) & 0xFFFFFFFF) for shape in shapes]
    widths = np.array([len(_template(*pair)) for pair in sizes], np.int64)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(widths[which])))
    data = np.empty(offsets[-1], np.uint8)
    for place, (pair, width) in enumerate(zip(sizes, widths, strict=True)):
        rows = np.flatnonzero(which == place)
        data[offsets[rows][:, None] + np.arange(width)] = _records(ids, values, rows, *pair)
    return offsets.tolist(), data.data


def _are_equal(sizes: Numbers) -> bool:
    return len(sizes) > 0 and bool((sizes == sizes[0]).all())


def _records(ids: Texts, values: Texts, rows: Numbers | None, id_size: int, value_size: int) -> Bytes:
    """uint8 [rows, width]: the two arguments of these rows, whose ids and values have these sizes."""
    template = _template(id_size, value_size)
    count = len(ids if rows is None else rows)
    records = np.frombuffer(bytearray(template) * count, np.uint8).reshape(count, len(template))
    first, last = len(_size(id_size)), len(template) - len(_END)
    records[:, first : first + id_size] = ids.matrix(rows, id_size)
    records[:, last - value_size : last] = values.matrix(rows, value_size)
    return records


_END = b"\r\n"


def _template(id_size: int, value_size: int) -> bytes:
    return argument(bytes(id_size)) + argument(bytes(value_size))


def _size(size: int) -> bytes:
    """What stands before a text of that size."""
    return b"$%d\r\n" % size
