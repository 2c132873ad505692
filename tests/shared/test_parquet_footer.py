"""What a footer says is held to what can be, before anyone asks: in the process that would end of it."""

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shared.parquet_footer import require_footer

TABLE = pa.table(
    {
        "id": ["a", "b", None, "a"],
        "number": [1.0, None, 2.0, 3.0],
        "numbers": pa.array([[1, 2], [], None, [3]]),
        "within": pa.array([{"a": ["x"], "b": 1}] * 4),
        "same": pa.array([[1.0] * 3] * 4, pa.list_(pa.float32(), 3)),
    }
)


def written(table: pa.Table = TABLE, **options: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def require(data: bytes, columns: Sequence[str] | None = None) -> None:
    require_footer(pq.read_metadata(io.BytesIO(data)), len(data), columns)


def with_other(data: bytes, before: bytes, after: bytes) -> bytes:
    assert data.count(before) == 1
    return data.replace(before, after)


@pytest.mark.parametrize("columns", [None, ["id"], ["numbers", "within", "same"], ["none of it"], []])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 1, "compression": "zstd"},
        {"use_dictionary": False, "write_page_index": True},
        {"compression": "none", "write_statistics": False, "data_page_version": "2.0"},
    ],
)
def test_a_whole_file_passes(options: dict[str, object], columns: list[str] | None) -> None:
    """However it is written, and whatever of it is asked for."""
    require(written(**options), columns)
    require(written(TABLE.slice(0, 0), **options), columns)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\x25\x02\x18\x06number", b"\x25\x00\x18\x06number"),
        (b"\x19\x18\x06number\x15\x02", b"\x19\x18\x06number\x15\x12"),
    ],
    ids=["levels", "compression"],
)
def test_what_cannot_be_is_an_error(before: bytes, after: bytes) -> None:
    """Of the columns that are asked for: of the others, nothing is looked at."""
    data = with_other(written(TABLE.select(["id", "number"])), before, after)
    with pytest.raises((OSError, pa.ArrowException)):
        require(data)
    with pytest.raises((OSError, pa.ArrowException)):
        require(data, ["id", "number"])
    require(data, ["id"])


def test_every_row_group_is_looked_at() -> None:
    """The last one's compression is as much a fault as the first one's."""
    column = b"\x19\x18\x06number\x15\x02"
    first, last = written(TABLE.select(["number"]), row_group_size=2).rsplit(column, 1)
    assert column in first
    with pytest.raises((OSError, pa.ArrowException)):
        require(first + column[:-1] + b"\x12" + last)


def test_a_column_that_lies_behind_the_file_is_an_error() -> None:
    """As where a file was cut and its footer kept."""
    data = written()
    with pytest.raises((OSError, pa.ArrowException)):
        require_footer(pq.read_metadata(io.BytesIO(data)), 100)
