"""Customers like those of the example's table, in any number: the same seed gives the same ones."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.places import ROOT

CUSTOMERS = ROOT / "examples" / "telco_churn" / "customers.parquet"
ENTITY = "customer_id"
_GROUP_ROWS = 100_000


def originals() -> pa.Table:
    """The customers themselves, without the label."""
    return pq.read_table(CUSTOMERS).drop_columns("churn")


def write_resampled(path: Path, rows: int, *, seed: int, prefix: str) -> Path:
    """A Parquet file of ``resampled`` customers, a row group at a time."""
    with pq.ParquetWriter(path, originals().schema) as writer:
        for place, first in enumerate(range(0, rows, _GROUP_ROWS)):
            count = min(_GROUP_ROWS, rows - first)
            writer.write_table(resampled(count, seed=seed * 1000 + place, prefix=prefix, first=first))
    return path


def resampled(rows: int, *, seed: int, prefix: str, first: int = 0) -> pa.Table:
    """Real customers drawn again with ids of 9 characters; their numbers differ a little from the originals'."""
    random = np.random.default_rng(seed)
    base = originals()
    drawn = base.take(pa.array(random.integers(0, len(base), rows)))
    tenure = np.clip(drawn["tenure"].to_numpy() + random.integers(-2, 3, rows), 0, 72)
    columns = {
        ENTITY: ids(prefix, first, rows),
        "tenure": pa.array(tenure),
        "monthly_charges": _jittered(drawn["monthly_charges"], random),
        "total_charges": _jittered(drawn["total_charges"], random),
    }
    return _replaced(drawn, columns)


def random_rows(rows: int, *, seed: int, prefix: str) -> pa.Table:
    """Rows whose features have nothing to do with one another: every category, the unseen, the missing, extremes."""
    random = np.random.default_rng(seed)
    base = originals()
    columns = {name: _drawn(base[name], rows, random) for name in base.column_names}
    return _replaced(pa.table(columns, schema=base.schema), {ENTITY: ids(prefix, 0, rows)})


def ids(prefix: str, first: int, rows: int) -> pa.Array:
    """``N00000000``, ``N00000001``, ...: 9 characters."""
    digits = pc.utf8_lpad(pa.array(np.arange(first, first + rows)).cast(pa.string()), 8, "0")
    return pc.binary_join_element_wise(prefix, digits, "")


def features_of(table: pa.Table) -> Iterator[dict[str, object]]:
    """The rows as JSON would give them, without the id."""
    yield from table.drop_columns(ENTITY).to_pylist()


def _jittered(column: pa.ChunkedArray, random: np.random.Generator) -> pa.Array:
    """Within five in a hundred, in cents; null stays null."""
    values = column.to_numpy()
    moved: npt.NDArray[np.float64] = np.round(values * random.uniform(0.95, 1.05, len(values)), 2)
    return pa.array(moved, from_pandas=True)


def _drawn(column: pa.ChunkedArray, rows: int, random: np.random.Generator) -> pa.Array:
    kind = column.type
    missing = random.random(rows) < 0.01  # noqa: PLR2004 - one in a hundred
    if pa.types.is_string(kind):
        words = [*column.unique().to_pylist()[:50], "never seen", ""]
        return pa.array(np.array(words, object)[random.integers(0, len(words), rows)], kind, mask=missing)
    if pa.types.is_integer(kind):
        return pa.array(random.integers(0, int(pc.max(column).as_py()) + 1, rows), kind, mask=missing)
    values = random.lognormal(3, 3, rows) * random.choice([1.0, 1.0, 1.0, -0.01], rows)
    return pa.array(values, kind, mask=missing)


def _replaced(table: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
    arrays = [columns.get(name, table[name]) for name in table.column_names]
    return pa.table(arrays, schema=table.schema)
