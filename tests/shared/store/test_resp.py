"""A batch as protocol bytes."""

import hiredis
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shared.layout import MARKER_FIELD, MARKER_VALUE
from shared.store.interfaces import PublishBatch
from shared.store.resp import PAIRS, lengths, markers, runs, slabs

Row = tuple[int, str, bytes]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
ROWS = st.lists(st.tuples(st.integers(0, 5), TEXT, st.binary(max_size=12)), max_size=400)


def _batch(rows: list[Row], kind: pa.DataType) -> PublishBatch:
    ordered = sorted(rows, key=lambda row: row[0])
    return PublishBatch(
        ids=pa.array([row[1] for row in ordered], kind),
        buckets=np.array([row[0] for row in ordered], dtype=np.uint32),
        values=pa.array([row[2] for row in ordered], pa.binary()),
    )


def _commands(text: bytes) -> list[list[bytes]]:
    reader = hiredis.Reader()
    reader.feed(text)
    commands = []
    while (command := reader.gets()) is not False:
        commands.append(command)
    return commands


@given(ROWS, st.sampled_from([1, 100, 100_000]), st.sampled_from([pa.string(), pa.large_string()]))
def test_the_bytes_say_what_the_batch_says(rows: list[Row], slab_bytes: int, kind: pa.DataType) -> None:
    """Read by a parser, the slabs are HSETs that hold every entity once, under its bucket's key."""
    sent = list(slabs(_batch(rows, kind), "prefix:", slab_bytes))
    commands = [command for text, _ in sent for command in _commands(text)]
    assert [count for _, count in sent] == [len(_commands(text)) for text, _ in sent]
    found: list[Row] = []
    for name, key, marker, mark, *pairs in commands:
        assert (name, marker, mark) == (b"HSET", b"", b"1")
        bucket = int(key.removeprefix(b"prefix:"))
        found += [(bucket, field.decode(), value) for field, value in zip(pairs[::2], pairs[1::2], strict=True)]
    assert found == sorted(rows, key=lambda row: row[0])


@given(ROWS)
def test_the_bytes_are_those_of_the_clients_own_packer(rows: list[Row]) -> None:
    """Byte for byte what hiredis makes of the same commands, whatever the ids and values are."""
    batch = _batch(rows, pa.string())
    ordered = sorted(rows, key=lambda row: row[0])
    packed = [
        hiredis.pack_command(
            (
                "HSET",
                f"p:{bucket}",
                MARKER_FIELD,
                MARKER_VALUE,
                *(text for row in ordered[first:stop] for text in row[1:]),
            )
        )
        for bucket, first, stop in runs(batch.buckets)
    ]
    assert b"".join(text for text, _ in slabs(batch, "p:", 100)) == b"".join(packed)


@given(TEXT, st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_markers_and_lengths_are_those_of_the_clients_own_packer(prefix: str, buckets: list[int]) -> None:
    """One command for each bucket, and as many are told."""
    marks = [hiredis.pack_command(("HSET", f"{prefix}{one}", MARKER_FIELD, MARKER_VALUE)) for one in buckets]
    sizes = [hiredis.pack_command(("HLEN", f"{prefix}{one}")) for one in buckets]
    assert markers(prefix, buckets) == (b"".join(marks), len(buckets))
    assert lengths(prefix, buckets) == (b"".join(sizes), len(buckets))


@given(st.lists(st.integers(0, 3), max_size=500))
def test_runs_cover_each_row_once(buckets: list[int]) -> None:
    """No row is left out, none is in two commands, and no command is longer than allowed."""
    column = np.array(sorted(buckets), dtype=np.uint32)
    covered = [(bucket, row) for bucket, first, stop in runs(column) for row in range(first, stop)]
    assert covered == [(int(bucket), row) for row, bucket in enumerate(column)]
    assert all(0 < stop - first <= PAIRS for _, first, stop in runs(column))


def test_a_slice_of_a_column_is_sent_from_where_it_begins() -> None:
    """A batch that is a window on larger columns sends its own rows."""
    rows = [(0, f"id{number}", b"v%d" % number) for number in range(50)]
    whole = _batch(rows, pa.string())
    part = PublishBatch(ids=whole.ids.slice(20, 5), buckets=whole.buckets[20:25], values=whole.values.slice(20, 5))
    [(text, _)] = slabs(part, "p:", 1)
    assert _commands(text)[0][4:] == [piece for row in rows[20:25] for piece in (row[1].encode(), row[2])]
