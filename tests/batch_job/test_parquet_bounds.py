"""Small Parquet files that would be large in memory."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import ROOT

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
            SourceError, match=rf"{path}: row group 0, column {column}: written out, .* MiB; the limit is 256 MiB: "
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


DIFFERENCES_OF_ID: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"id": "DELTA_BYTE_ARRAY"}}
DIFFERENCES: dict[str, Any] = {
    "use_dictionary": False,
    "column_encoding": dict.fromkeys(("id", "visits", "basket"), "DELTA_BYTE_ARRAY"),
}
READS = """
import resource, sys
from batch_job import parquet_bounds
from batch_job.source import open_source
from shared.errors import SourceError

parquet_bounds.MAX_TEXT_BYTES, parquet_bounds.MAX_STEP_BYTES = 64 * 1024**2, 16 * 1024**2

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

source = open_source(sys.argv[1], entity="id", features=("visits", "basket"), coded=("basket",))
before = peak()
try:
    for _ in source.id_batches(): pass
    for _ in source.chunks(50_000): pass
except SourceError as error:
    print(error)
print(peak() - before)
"""


def test_a_category_that_is_written_by_difference_is_read(tmp_path: Path) -> None:
    """A valid encoding of which Arrow reads no dictionaries."""
    path = tmp_path / "t.parquet"
    table = pa.table({"id": ["1", "2"], "visits": ["0", "1"], "basket": ["zero", "one"]})
    pq.write_table(table, path, **DIFFERENCES)
    [chunk] = _drain(path)
    assert chunk["basket"].to_pylist() == ["zero", "one"]


def test_one_long_text_that_all_repeat_is_refused_in_little_memory(tmp_path: Path) -> None:
    """100 MB of text in a kilobyte, as differences of which there are none, and the footer does not tell of them."""
    path = _bomb(tmp_path / "bomb.parquet", "id")
    path.write_bytes(_said_to_be_plain(path.read_bytes()))
    assert path.stat().st_size < 10_000
    read = subprocess.run([sys.executable, "-c", READS, path], capture_output=True, text=True, check=True, cwd=ROOT)
    refusal, peak = read.stdout.splitlines()
    assert refusal.startswith(f"{path}: row group 0, column id: written out, the texts")
    assert int(peak) < 64


@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0"}, {"compression": "zstd"}, {"row_group_size": 70}])
@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=200), rows=st.integers(1, 60), data=st.data())
@settings(max_examples=15)
def test_texts_by_difference_are_read_or_are_too_many(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    rows: int,
    data: st.DataObject,
    options: dict[str, Any],
) -> None:
    """They come out as they were where no rows that are read at once have too much of them; else they are refused."""
    texts = ["x" * length + str(place) for place, length in enumerate(lengths)]
    table = pa.table({"id": texts, "visits": texts, "basket": texts})
    path = tmp_path_factory.getbasetemp() / "differences.parquet"
    pq.write_table(table, path, **DIFFERENCES, data_page_size=100, write_batch_size=5, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_bounds, "MAX_TEXT_BYTES", most := data.draw(st.integers(1000, 3000)))
        patch.setattr(parquet_bounds, "MAX_STEP_BYTES", data.draw(st.integers(1, 5000)))
        patch.setattr("batch_job.source.READ_ROWS", rows)
        try:
            read = pa.concat_tables(_drain(path))
        except SourceError:
            assert _most(texts, 2 * rows) + 8 * 2 * rows > most
        else:
            assert read.to_pydict() == table.to_pydict()
            assert _most(texts, rows) <= most


def test_a_page_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which no row could be looked at."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": ["9" * 5000], "visits": [0.0], "basket": ["0"]}), path, **DIFFERENCES_OF_ID)
    monkeypatch.setattr(parquet_bounds, "MAX_TEXT_BYTES", 4000)
    with pytest.raises(SourceError, match=r"row group 0, column id: a page has .* write the file with smaller pages"):
        _drain(path)


def _bomb(path: Path, column: str) -> Path:
    """1,000 rows of the same 100,000 characters, in one page."""
    few = [str(row) for row in range(100)]
    rows = pa.table({name: [MARKER[:100_000]] * 100 if name == column else few for name in ("id", "visits", "basket")})
    pq.write_table(pa.concat_tables([rows] * 10), path, compression="zstd", data_page_size=2**30, **DIFFERENCES)
    assert pq.read_metadata(path).num_row_groups == 1
    return path


def _said_to_be_plain(file: bytes) -> bytes:
    """With a footer that lists another encoding in place of DELTA_BYTE_ARRAY: the columns' lengths and texts."""
    start = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    assert b"\x25\x06\x0e" in file[start:]
    return file[:start] + file[start:].replace(b"\x25\x06\x0e", b"\x25\x06\x0c")


def _most(texts: list[str], rows: int) -> int:
    """The most bytes of so many of them in a row."""
    return max(len("".join(texts[start : start + rows])) for start in range(len(texts)))
