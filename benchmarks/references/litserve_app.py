"""LitServe with batching on. ``python -m benchmarks.references.litserve_app PORT``."""

import os
import sys
from pathlib import Path
from typing import Any

import litserve
import torch

from benchmarks.references.rows import Customer
from benchmarks.references.telco import Telco

Row = tuple[list[float], list[int]]


class ChurnAPI(litserve.LitAPI):  # type: ignore[misc] # an optional package
    def setup(self, device: str) -> None:  # noqa: ARG002 - one CPU
        self.telco = Telco(Path(os.environ["BENCH_BUNDLE"]))

    def decode_request(self, request: Customer) -> Row:
        row = vars(request)
        telco = self.telco
        dense = [telco.number(name, row[name]) for name in telco.dense]
        return dense, [telco.code(name, row[name]) for name in telco.categories]

    def batch(self, inputs: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([dense for dense, _ in inputs]), torch.tensor([codes for _, codes in inputs])

    def predict(self, x: tuple[torch.Tensor, torch.Tensor]) -> list[float]:
        scores: list[float] = self.telco.probabilities(*x).tolist()
        return scores

    def unbatch(self, output: list[float]) -> list[float]:
        return output

    def encode_response(self, output: float) -> dict[str, Any]:
        return {"churn": output, "prediction": output >= 0.5}  # noqa: PLR2004 - the threshold of the model


if __name__ == "__main__":
    api = ChurnAPI(max_batch_size=32, batch_timeout=0.001, api_path="/score")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
