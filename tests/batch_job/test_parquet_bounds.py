"""Small Parquet files that would be large in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batch_job import parquet_bounds
from batch_job.source import open_source
from shared.errors import SourceError

MARKER = "9" * 1_000_000
MEGABYTE = 1024**2


@contextmanager
def _counted() -> Iterator[pa.MemoryPool]:
    """What all of Arrow's memory comes from meanwhile: it knows its peak."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    try:
        yield counted
    finally:
        pa.set_memory_pool(before)


def _repeated(rows: int, text: str = MARKER) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def _write(path: Path, *, store_schema: bool = False, **columns: object) -> Path:
    rows = len(next(iter(columns.values())))  # type: ignore[arg-type]
    given = {"id": [str(row) for row in range(rows)], "visits": [0.0] * rows, "basket": ["0"] * rows, **columns}
    pq.write_table(pa.table(given), path, compression="zstd", store_schema=store_schema)
    return path


def _drain(path: Path, *, coded: tuple[str, ...] = ("basket",)) -> list[pa.Table]:
    source = open_source(str(path), entity="id", features=("visits", "basket"), coded=coded)
    for _ in source.id_batches():
        pass
    return [chunk.table for chunk in source.chunks(1000)]


@pytest.mark.parametrize("store_schema", [False, True])
@pytest.mark.parametrize("column", ["id", "visits"])
def test_one_long_text_in_each_row_is_refused_before_it_is_written_out(
    tmp_path: Path, column: str, *, store_schema: bool
) -> None:
    """4 GB of text in a few kilobytes: refused with file, row group, column and next step, in little memory."""
    path = _write(tmp_path / "bomb.parquet", store_schema=store_schema, **{column: _repeated(4000)})
    assert path.stat().st_size < MEGABYTE
    with (
        _counted() as pool,
        pytest.raises(
            SourceError, match=rf"{path}: row group 0, column {column}: .* MiB written out; the limit is 256 MiB: "
        ) as told,
    ):
        _drain(path)
    assert MARKER[:20] not in str(told.value)
    assert pool.max_memory() < 64 * MEGABYTE


def test_the_row_group_is_named_in_which_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several, counted from 0."""
    monkeypatch.setattr(parquet_bounds, "MAX_TEXT_BYTES", 5 * MEGABYTE)
    monkeypatch.setattr("batch_job.source.READ_ROWS", 10)
    texts = pa.array(["1"] * 40 + [MARKER] * 20)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": texts, "visits": [0.0] * 60, "basket": ["0"] * 60}), path, row_group_size=20)
    with pytest.raises(SourceError, match="row group 2, column id"):
        _drain(path)


def test_a_long_list_of_one_number_is_refused_before_it_is_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal numbers take no room in the file, and 4 bytes each in memory."""
    path = tmp_path / "lists.parquet"
    row = pa.array([np.zeros(10_000_000, np.float32)], pa.list_(pa.float32()))
    with pq.ParquetWriter(
        path, pa.schema([("id", pa.string()), ("visits", row.type), ("basket", pa.string())])
    ) as file:
        file.write_table(pa.table({"id": ["1"], "visits": row, "basket": ["0"]}))
    monkeypatch.setattr(parquet_bounds, "MAX_ROW_GROUP_BYTES", 39_000_000)
    with _counted() as pool, pytest.raises(SourceError, match=r"row group 0 has 0\.0 GiB"):
        _drain(path)
    assert pool.max_memory() < 10 * MEGABYTE


def test_texts_that_fit_are_what_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as dictionaries and measured, texts, bytes and nulls come out as they would have."""
    columns = {
        "id": pa.array([f"C{row % 7}" for row in range(500)]),
        "visits": pa.array([None if row % 5 == 0 else b"\xff%d" % (row % 3) for row in range(500)]),
    }
    path = _write(tmp_path / "t.parquet", **columns)
    plain = _drain(path)
    monkeypatch.setattr(parquet_bounds, "MAX_TEXT_BYTES", 3000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batch_job.source.READ_ROWS", 100)
        assert [table.to_pydict() for table in _drain(path)] == [table.to_pydict() for table in plain]


def test_a_category_that_is_written_by_difference_is_read(tmp_path: Path) -> None:
    """A valid encoding of which Arrow reads no dictionaries."""
    path = tmp_path / "t.parquet"
    table = pa.table({"id": ["1", "2"], "visits": [0.0, 1.0], "basket": ["zero", "one"]})
    pq.write_table(table, path, use_dictionary=False, column_encoding={"basket": "DELTA_BYTE_ARRAY"})
    [chunk] = _drain(path)
    assert chunk["basket"].to_pylist() == ["zero", "one"]
