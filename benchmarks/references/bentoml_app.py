"""BentoML with adaptive batching on. ``python -m benchmarks.references.bentoml_app PORT``."""

import os
import sys
from pathlib import Path
from typing import Any

import bentoml
import torch

from benchmarks.references.rows import Customer
from benchmarks.references.telco import Telco


@bentoml.service(workers=1, traffic={"timeout": 10})
class Churn:
    def __init__(self) -> None:
        self.telco = Telco(Path(os.environ["BENCH_BUNDLE"]))

    @bentoml.api(route="/score", batchable=True, max_batch_size=32)  # type: ignore[untyped-decorator] # an optional package
    def score(self, customers: list[Customer]) -> list[dict[str, Any]]:
        telco, rows = self.telco, [vars(customer) for customer in customers]
        dense = torch.tensor([[telco.number(name, row[name]) for name in telco.dense] for row in rows])
        codes = torch.tensor([[telco.code(name, row[name]) for name in telco.categories] for row in rows])
        return [{"churn": churn, "prediction": churn >= 0.5} for churn in telco.probabilities(dense, codes).tolist()]  # noqa: PLR2004 - the threshold of the model


if __name__ == "__main__":
    bentoml.serve(Churn, host="127.0.0.1", port=int(sys.argv[1]), blocking=True)
