"""Splits the customers as a company would find them: most are in the nightly table, some came after it was made.

    python examples/telco_churn/prepare.py OUT_FOLDER

writes ``nightly.parquet`` (what the batch job scores) and ``unseen.parquet`` (what the service finds features in for
those whom the batch has never seen). Neither has the label.
"""

import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CUSTOMERS = Path(__file__).parent / "customers.parquet"


def split(customers: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The nightly table, and the unseen: one in ten, always the same ones, because a hash of the id decides."""
    unseen = pa.array([zlib.crc32(text.encode()) % 10 == 0 for text in customers["customer_id"].to_pylist()])
    features = customers.drop_columns("churn")
    return features.filter(pc.invert(unseen)), features.filter(unseen)


def prepare(out: Path) -> tuple[Path, Path]:
    """Writes both tables into the folder ``out`` and returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    nightly, unseen = out / "nightly.parquet", out / "unseen.parquet"
    for table, path in zip(split(pq.read_table(CUSTOMERS)), (nightly, unseen), strict=True):
        if not path.exists():  # the batch job knows a table by its size and time: a table that is there stays as it is
            partial = path.with_suffix(".partial")
            pq.write_table(table, partial)
            partial.rename(path)
    return nightly, unseen


if __name__ == "__main__":
    for written in prepare(Path(sys.argv[1])):
        print(f"{written}: {pq.read_metadata(written).num_rows:,} customers")
