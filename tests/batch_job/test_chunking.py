"""Rows in chunks of one size, and those that need not be read."""

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from batch_job.chunking import Numbered, Rest, rechunked

Groups = list[int]
_groups = st.lists(st.integers(0, 12), max_size=12)
_done = st.sets(st.integers(0, 30)).map(frozenset)


def _rows(first: int, count: int) -> pa.Table:
    return pa.table({"row": pa.array(range(first, first + count), pa.int64())})


def _read(groups: Groups, rest: Rest) -> Iterator[Numbered]:
    """A file whose rows hold their own numbers, without what is passed over."""
    starts = [sum(groups[:place]) for place in range(len(groups) + 1)]
    row = 0
    for stretch in rest.stretches(groups, 0):
        row += stretch.unread
        assert stretch.groups is not None
        for place in stretch.groups:
            assert starts[place] == row
            yield row, _rows(row, groups[place])
            row += groups[place]
    assert row == starts[-1]


def _needed(groups: Groups, size: int, done: frozenset[int]) -> int:
    """How many rows lie in groups that touch a chunk which is not done."""
    starts = [sum(groups[:place]) for place in range(len(groups))]
    spans = [range(start, start + count) for start, count in zip(starts, groups, strict=True)]
    return sum(len(span) for span in spans if any(row // size not in done for row in span))


@given(groups=_groups, size=st.integers(1, 9), done=_done)
def test_what_is_left_comes_as_if_all_had_been_read(groups: Groups, size: int, done: frozenset[int]) -> None:
    """Whatever the groups: the chunks that are not done, each with its own number and its own rows."""
    found = rechunked(_read(groups, Rest(size=size, done=done)), size, done)
    chunks = {index: table["row"].to_pylist() for index, table in found}
    total = sum(groups)
    every = {index: list(range(total))[index * size : (index + 1) * size] for index in range(-(-total // size))}
    assert chunks == {index: rows for index, rows in every.items() if index not in done}


@given(groups=_groups, size=st.integers(1, 9), done=_done)
def test_no_group_is_read_of_which_all_is_done(groups: Groups, size: int, done: frozenset[int]) -> None:
    """Only groups that hold a row of a chunk that is not done."""
    read = sum(table.num_rows for _, table in _read(groups, Rest(size=size, done=done)))
    assert read == _needed(groups, size, done)
