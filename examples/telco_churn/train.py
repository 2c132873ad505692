"""Trains a small churn model on real customers, in seconds, and says what its bundle is made of.

Build it with ``forescore bundle build examples.telco_churn.train:bundle OUT_BUNDLE``.
"""

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from forescore import Binary, Boolean, BundleSpec, Categorical, Numeric, Schema, fit, training_tensors

TABLE = Path(__file__).parent / "customers.parquet"
LEAST_AUC = 0.82
SWITCHES = "female senior_citizen partner dependents phone_service paperless_billing"
CHOICES = """multiple_lines internet_service online_security online_backup device_protection tech_support streaming_tv
    streaming_movies contract payment_method"""

# 1. Say what the model takes and gives: this is the contract of the batch job and the service.
SCHEMA = Schema(
    entity="customer_id",
    features=[
        Numeric("tenure", standardise=True),
        Numeric("monthly_charges", standardise=True),
        Numeric("total_charges", missing="median", log1p=True, standardise=True),
        *[Boolean(name) for name in SWITCHES.split()],
        *[Categorical(name) for name in CHOICES.split()],
    ],
    outputs=[Binary("churn", threshold=0.5)],
)


# 2. Write the model as always: dense columns and category codes in, one logit a row out.
class ChurnModel(nn.Module):
    """An embedding for each categorical feature, and a small MLP on top."""

    def __init__(self, dense_width: int, cardinalities: tuple[int, ...], size: int = 4) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(count, size) for count in cardinalities)
        width = dense_width + size * len(cardinalities)
        self.layers = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 1))

    def forward(self, dense: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        looked_up = [table(codes[:, column]) for column, table in enumerate(self.tables)]
        logits: torch.Tensor = self.layers(torch.cat([dense, *looked_up], dim=1))
        return logits.squeeze(1)


# 3. Train as always, on tensors that went through the encoder that will serve.
def train(module: nn.Module, inputs: tuple[torch.Tensor, ...], churned: torch.Tensor, epochs: int = 8) -> None:
    """Adam on the log loss, in batches of 128."""
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3, weight_decay=1e-4)
    for _ in range(epochs):
        for picks in torch.randperm(len(churned)).split(128):
            optimizer.zero_grad()
            logits = module(*(part[picks] for part in inputs))
            nn.functional.binary_cross_entropy_with_logits(logits, churned[picks].float()).backward()
            optimizer.step()


# 4. Put it together: what this returns is all that a bundle needs.
def bundle() -> BundleSpec:
    """Trains on four customers in five, judges by the fifth, and refuses to go on with a model that is not good."""
    torch.manual_seed(2026)
    torch.set_num_threads(1)  # threads cost more than they bring to a model this small
    table = pq.read_table(TABLE)
    held_out = np.array([zlib.crc32(text.encode()) % 5 == 0 for text in table["customer_id"].to_pylist()])
    learn, judge = table.filter(~held_out), table.filter(held_out)

    fitted = fit(SCHEMA, learn)
    module = ChurnModel(fitted.dense_width, fitted.cardinalities)
    tensors = training_tensors(fitted, learn)
    train(module, tensors.inputs, labels(learn)[tensors.rows])

    module.eval()
    tensors = training_tensors(fitted, judge)
    with torch.no_grad():
        found = auc(labels(judge)[tensors.rows].numpy(), module(*tensors.inputs).numpy())
    print(f"trained: AUC {found:.3f} on {judge.num_rows:,} held-out customers", flush=True)
    if found < LEAST_AUC:
        raise SystemExit(f"AUC {found:.3f} is below {LEAST_AUC}: this model is not worth serving")
    return BundleSpec(name="churn", version="2026.11.1", fitted=fitted, module=module, golden=judge.slice(0, 256))


def labels(table: pa.Table) -> torch.Tensor:
    """Whether each customer left: bool [rows]."""
    return torch.tensor([text == "Yes" for text in table["churn"].to_pylist()])


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The share of (churned, stayed) pairs in which the churned one has the higher score."""
    ranks = np.searchsorted(np.sort(scores), scores, "left") + np.searchsorted(np.sort(scores), scores, "right") + 1
    positive = int(labels.sum())
    above = ranks[labels].sum() / 2 - positive * (positive + 1) / 2
    return float(above / (positive * (len(labels) - positive)))
