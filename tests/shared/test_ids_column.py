"""The Arrow door of the entity ids."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.codes import Code
from shared.errors import ColumnRefused
from shared.ids import MAX_ID_BYTES, id_column, id_text

TEXTS = st.text(max_size=20) | st.text(alphabet=" \t\u00a0\u2003\u200b\u0085a7", max_size=4)


@given(st.lists(st.none() | TEXTS, max_size=30))
def test_a_column_says_of_each_text_what_the_one_value_door_says(values: list[str | None]) -> None:
    """Both doors give the same text or the same reason for every value."""
    values = [value for value in values if value is None or not any("\ud800" <= c <= "\udfff" for c in value)]
    column = id_column(pa.array(values, pa.string()))
    found = [column.refused.get(row, text) for row, text in enumerate(column.text.to_pylist())]
    assert found == [id_text(value) for value in values]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_integers_are_written_in_decimal_and_exact(values: list[int | None]) -> None:
    """An int64 id keeps every digit, above 2**53 too."""
    column = id_column(pa.array(values, pa.int64()))
    assert column.text.to_pylist() == [None if value is None else str(value) for value in values]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
)
def test_5_is_one_entity_whatever_the_width(kind: pa.DataType) -> None:
    """B1: 5 of any integer type is the entity "5"."""
    assert id_column(pa.array([5], kind)).text.to_pylist() == ["5"]


def test_unsigned_64_bits_are_exact() -> None:
    """The greatest uint64 is written with all of its digits."""
    assert id_column(pa.array([2**64 - 1], pa.uint64())).text.to_pylist() == ["18446744073709551615"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_stays_text(kind: pa.DataType) -> None:
    """B4: ``007`` and ``00060`` keep their zeros, in every type of text."""
    column = id_column(pa.chunked_array([pa.array(["007"], kind), pa.array(["00060", None], kind)]))
    assert column.text.to_pylist() == ["007", "00060", None]
    assert column.text.type == pa.string()
    assert column.refused == {2: Code.NULL_ID}


@pytest.mark.parametrize("values", [["b", None, "a", "b"], [7, None, 5, 7]])
def test_a_dictionary_is_its_values(values: list[object]) -> None:
    """A dictionary of text or integers reads as the column it stands for."""
    column = id_column(pa.array(values).dictionary_encode())
    assert column.text.to_pylist() == [None if value is None else str(value) for value in values]
    assert column.refused == {1: Code.NULL_ID}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([5.0]),
        pa.array([True]),
        pa.array([b"5"]),
        pa.array([Decimal(5)]),
        pa.array([0], pa.date32()),
        pa.array([0], pa.timestamp("s")),
        pa.array([[5]]),
        pa.array([5.0]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_a_type_without_an_exact_written_form_is_refused(column: pa.Array) -> None:
    """A float, decimal, boolean, binary, temporal or nested column is no column of ids, and the error names it."""
    with pytest.raises(ColumnRefused, match=r"column customer is .* write the column as text"):
        id_column(column, "customer")


def test_bytes_that_are_not_text_cost_their_own_row() -> None:
    """A text column with invalid UTF-8 rejects that row only."""
    broken = pa.array([b"ok", b"\xff", b"fine"], pa.binary())
    column = id_column(pa.Array.from_buffers(pa.string(), 3, broken.buffers()))
    assert column.text.to_pylist() == ["ok", None, "fine"]
    assert column.refused == {1: Code.INVALID_ID}


def test_the_length_is_counted_in_bytes() -> None:
    """256 bytes are an id, 257 are not, and a letter may have several."""
    values = ["x" * MAX_ID_BYTES, "x" * (MAX_ID_BYTES + 1), "\u00fc" * 128, "\u00fc" * 129]
    assert id_column(pa.array(values)).refused == {1: Code.INVALID_ID, 3: Code.INVALID_ID}


def test_an_empty_column_is_fine() -> None:
    """No rows, no refusals."""
    assert id_column(pa.chunked_array([], pa.int64())).text.to_pylist() == []
