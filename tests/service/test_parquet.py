import asyncio
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.parquet import FEW, open_parquet
from shared.errors import ColumnMissing, ColumnRefused, TableNotFound
from shared.schema import Binary, Categorical, Numeric, Schema

SCHEMA = Schema(entity="id", features=(Numeric("x"), Categorical("c", vocabulary=("u", "v"))), outputs=(Binary("y"),))


def _write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_each_entity_has_its_own_row(tmp_path: Path) -> None:
    """Unsorted ids, many or few of them, each find their values; the unknown find nothing."""
    ids = [f"E{number * 7919 % 1000:04d}" for number in range(1000)]
    source = open_parquet(
        _write(tmp_path / "f.parquet", id=ids, x=list(range(1000)), c=["u", "v"] * 500, other=ids), SCHEMA
    )
    assert asyncio.run(source.read(["E0001", "nobody", ids[3]])) == {
        "E0001": {"x": ids.index("E0001"), "c": "uv"[ids.index("E0001") % 2]},
        ids[3]: {"x": 3, "c": "v"},
    }

    many = asyncio.run(source.read([*ids, "nobody"]))

    assert len(ids) > FEW
    assert [row["x"] for row in many.values() if row is not None] == list(range(1000))


def test_the_last_row_of_an_entity_counts(tmp_path: Path) -> None:
    """Of several rows, the one that was written last is the newest."""
    source = open_parquet(_write(tmp_path / "f.parquet", id=["a", "b", "a", "a"], x=[1, 2, 3, 4], c=["u"] * 4), SCHEMA)

    assert asyncio.run(source.read(["a"])) == {"a": {"x": 4, "c": "u"}}


@pytest.mark.parametrize(
    ("ids", "asked"),
    [
        (pa.array([7, None, 8], pa.int32()), "7"),
        (pa.array([2**63, 1, 2], pa.uint64()), str(2**63)),
        (pa.array(["007", "7", None]), "007"),
        (pa.array(["007", "7", None]).dictionary_encode(), "007"),
        (pa.array(["\u00e9", "e\u0301", "\u65e5"], pa.large_string()), "\u00e9"),
    ],
)
def test_ids_have_one_written_form(tmp_path: Path, ids: pa.Array, asked: str) -> None:
    """Whatever the column's type, an id is found by the text that names it; rows without an id are nobody's."""
    source = open_parquet(_write(tmp_path / "f.parquet", id=ids, x=[1, 2, 3], c=["u"] * 3), SCHEMA)

    assert asyncio.run(source.read([asked, "None", "null", ""])) == {asked: {"x": 1, "c": "u"}}


def test_values_come_as_the_encoder_knows_them(tmp_path: Path) -> None:
    """Nulls, decimals and dates are left to the schema's rules."""
    values = pa.array([None, Decimal("1.5")], pa.decimal128(5, 2)), pa.array([date(2026, 11, 30), None])
    source = open_parquet(_write(tmp_path / "f.parquet", id=["a", "b"], x=values[0], c=values[1]), SCHEMA)

    assert asyncio.run(source.read(["a", "b"])) == {
        "a": {"x": None, "c": date(2026, 11, 30)},
        "b": {"x": Decimal("1.50"), "c": None},
    }


def test_a_file_that_is_not_there_or_no_parquet_is_named(tmp_path: Path) -> None:
    """The operator reads which file and which setting."""
    (tmp_path / "text").write_text("no")
    for name in ("nothing", "text", "."):
        with pytest.raises(TableNotFound, match="features: "):
            open_parquet(tmp_path / name, SCHEMA)


def test_a_column_that_is_missing_or_refused_is_named(tmp_path: Path) -> None:
    """A feature that is not in the file would be missing for everybody: that is a mistake, not a value."""
    with pytest.raises(ColumnMissing, match="'c'"):
        open_parquet(_write(tmp_path / "a.parquet", id=["a"], x=[1]), SCHEMA)
    with pytest.raises(ColumnRefused, match="id"):
        open_parquet(_write(tmp_path / "b.parquet", id=[1.5], x=[1], c=["u"]), SCHEMA)


def test_an_empty_table_knows_nobody(tmp_path: Path) -> None:
    """No rows are no mistake."""
    columns = {"id": pa.array([], pa.string()), "x": pa.array([], pa.float64()), "c": pa.array([], pa.string())}
    source = open_parquet(_write(tmp_path / "f.parquet", **columns), SCHEMA)

    assert asyncio.run(source.read(["a"])) == {}


def test_the_service_loads_neither_datasets_nor_torch_nor_the_schedule() -> None:
    """A process that serves does not pay for what only the batch job needs, nor wait for torch before it answers."""
    code = (
        "import sys, service.app, service.parquet, pyarrow.parquet; "
        "print([name for name in ('pyarrow.dataset', 'torch', 'apscheduler', 'batch_job') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
