"""The lesson's loop: a DataLoader over a TensorDataset, rows appended in Python, a redis-py pipeline of 5,000.

``python -m benchmarks.references.lesson BUNDLE TABLE ROWS OUT REDIS_URL`` says how long scoring and publishing took.
The table is read and its columns are turned into tensors with pyarrow and NumPy; the rows end in a Parquet file and in
Redis.
"""

import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from redis import Redis
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.children import answer
from benchmarks.references.telco import Telco
from benchmarks.work.loaded import load_libraries

BATCH_ROWS = 1024
PIPELINE_COMMANDS = 5_000
SCORED_AT = "2026-11-30T02:00:41Z"


def main() -> None:
    load_libraries()
    bundle, table, limit, out, url = sys.argv[1:]
    telco = Telco(Path(bundle))
    started = time.perf_counter()
    rows = score(telco, Path(table), int(limit))
    pq.write_table(pa.Table.from_pylist(rows), out)
    scored = time.perf_counter()
    publish(Redis.from_url(url), rows)
    answer(rows=len(rows), score=scored - started, publish=time.perf_counter() - scored)


def score(telco: Telco, path: Path, limit: int) -> list[dict[str, Any]]:
    """One row for each customer."""
    table = next(pq.ParquetFile(path).iter_batches(limit))
    ids = table["customer_id"].to_pylist()
    dense = torch.tensor(np.column_stack([_numbers(telco, name, table[name]) for name in telco.dense]))
    codes = torch.tensor([[telco.code(name, word) for word in table[name].to_pylist()] for name in telco.categories]).T
    rows: list[dict[str, Any]] = []
    for dense_batch, code_batch in DataLoader(TensorDataset(dense, codes), batch_size=BATCH_ROWS):
        for churn in telco.probabilities(dense_batch, code_batch):
            rows.append({"entity_id": ids[len(rows)], "churn": float(churn), "prediction": bool(churn >= 0.5)})  # noqa: PLR2004 - the threshold of the model
    return rows


def publish(client: Redis, rows: list[dict[str, Any]]) -> None:
    """One key for each customer, as the naive service reads it."""
    waiting = iter(rows)
    while batch := list(islice(waiting, PIPELINE_COMMANDS)):
        pipeline = client.pipeline(transaction=False)
        for key, value in map(pair, batch):
            pipeline.set(key, value)
        pipeline.execute()


def pair(row: dict[str, Any]) -> tuple[str, str]:
    """A row as it lies in Redis."""
    return f"score:{row['entity_id']}", json.dumps({**row, "model_version": "2026.11.1", "scored_at": SCORED_AT})


def _numbers(telco: Telco, name: str, column: pa.Array) -> np.ndarray:
    values: np.ndarray = column.to_numpy(zero_copy_only=False).astype(np.float32)
    if name not in telco.numbers:
        return values
    fill, mean, std = telco.numbers[name]
    values = np.where(np.isnan(values), np.float32(fill), values)
    scaled = ((np.log1p(values) if name in telco.logged else values) - mean) / std
    return scaled.astype(np.float32)


if __name__ == "__main__":
    main()
