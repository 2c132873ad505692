"""Columns of texts as matrices."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.texts import taken

TEXTS = st.one_of(
    st.lists(st.text("abc\u00e9", min_size=3, max_size=3), max_size=30),
    st.lists(st.one_of(st.none(), st.text("abc", max_size=4)), max_size=30),
)


@given(TEXTS, st.data(), st.sampled_from([pa.string(), pa.binary(), pa.large_string()]))
def test_rows_are_taken_as_arrow_takes_them(texts: list[str | None], data: st.DataObject, kind: pa.DataType) -> None:
    """Of one length or of many, with nulls or without, of a slice too: the same rows in the same order."""
    column = pa.array(texts, pa.string()).cast(kind).slice(data.draw(st.integers(0, len(texts))))
    rows = st.lists(st.integers(0, max(0, len(column) - 1)), max_size=40 if len(column) else 0)
    order = np.array(data.draw(rows), np.int64)
    found = taken(column, order)
    found.validate(full=True)
    assert found.equals(column.take(pa.array(order)))


@pytest.mark.parametrize("column", [pa.array([3, 1, 2]), pa.array([None, 1.5, 2.5])])
def test_other_columns_are_taken_too(column: pa.Array) -> None:
    """Numbers are as good as texts."""
    assert taken(column, np.array([2, 0])).equals(column.take(pa.array([2, 0])))
