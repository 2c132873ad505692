"""A 64-bit fingerprint of each id: equal ids have equal ones, and different ids hardly ever do.

It says where to look for duplicates, never what one is: whoever finds two equal fingerprints compares the ids.
Ids of one length of up to 8 bytes never share one, because every step of the mixing can be undone.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Fingerprints = npt.NDArray[np.uint64]

_WORD = 8
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # any odd number can be divided by again; this one spreads bits well
_SHIFT = np.uint64(32)


def fingerprints(ids: pa.Array) -> Fingerprints:
    """Of a text column without nulls: uint64 [rows]. The same text has the same one in every batch."""
    column = ids.cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    words = _words(column.buffers()[2], int(offsets[0]), int(offsets[-1]))
    longest = int(lengths.max(initial=0))
    if longest and longest == lengths.min():
        return _of_one_length(words, len(lengths), longest)
    found = lengths.astype(np.uint64) * _ODD
    for place in range(0, longest, _WORD):
        left = lengths - place
        rows = slice(None) if left.min() > 0 else np.flatnonzero(left > 0)
        word = words[starts[rows] + place] & _MASKS[np.minimum(left[rows], _WORD)]
        mixed = (found[rows] ^ word) * _ODD
        found[rows] = mixed ^ (mixed >> _SHIFT)
    return found


def _of_one_length(words: Fingerprints, rows: int, length: int) -> Fingerprints:
    """The same for ids that lie side by side, all of one length, as those of one model mostly are."""
    found = np.full(rows, length, np.uint64) * _ODD
    for place in range(0, length, _WORD):
        word = words[place : place + rows * length : length]
        found ^= word & _MASKS[min(length - place, _WORD)]
        found *= _ODD
        found ^= found >> _SHIFT
    return found


def _words(data: pa.Buffer | None, start: int, stop: int) -> Fingerprints:
    """The 8 bytes that begin at each byte of the text, as a number; zeros behind its end."""
    text = np.zeros(stop - start + _WORD, np.uint8)
    if data is not None:
        text[: stop - start] = np.frombuffer(data, np.uint8)[start:stop]
    return np.ndarray((stop - start + 1,), "<u8", text, strides=(1,))
