"""Tiny bundles for tests: built in a second, with a model of known weights."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from shared.build import build_bundle
from shared.bundle import Bundle
from shared.fit import fit
from shared.schema import (
    Binary,
    Boolean,
    Categorical,
    MultiClass,
    MultiLabel,
    Numeric,
    Output,
    Regression,
    Schema,
    Tensor,
)

PURCHASE_FEATURES = ("visits", "returns", "basket")


def purchase_schema() -> Schema:
    """Three numbers, all required, one probability: the smallest useful model."""
    return Schema(
        entity="customer_id",
        features=tuple(Numeric(name) for name in PURCHASE_FEATURES),
        outputs=(Binary("buys", threshold=0.5),),
    )


def purchase_bundle(
    path: Path,
    *,
    version: str = "1",
    weights: tuple[float, float, float] = (0.8, -0.4, 0.6),
    bias: float = -0.2,
) -> Bundle:
    """sigmoid(weights . features + bias): ``[1, 0, 2]`` scores 0.8581489 with the weights as they are."""
    module = _linear(len(weights), 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([weights]))
        module.bias.fill_(bias)
    random = np.random.default_rng(0)
    golden = pa.table({name: random.integers(0, 6, 64).astype(np.float64) for name in PURCHASE_FEATURES})
    return build_bundle(
        path, name="purchase", version=version, fitted=fit(purchase_schema()), module=module.eval(), golden=golden
    )


def every_feature_bundle(path: Path, *, outputs: tuple[Output, ...] | None = None, version: str = "1") -> Bundle:
    """All feature kinds, with lenient rules; a linear model with seeded weights; by default all output kinds."""
    schema = Schema(entity="id", features=_features(), outputs=outputs or every_output())
    table = every_feature_table(64)
    fitted = fit(schema, table)
    module = _Everything(fitted.dense_width, fitted.cardinalities, len(schema.columns)).eval()
    return build_bundle(path, name="everything", version=version, fitted=fitted, module=module, golden=table)


def every_output() -> tuple[Output, ...]:
    """One output of each kind."""
    return (
        Binary("leaves", classes=("stays", "leaves"), threshold=0.5),
        MultiClass("plan", classes=("small", "medium", "large")),
        MultiLabel("wants", classes=("phone", "fibre"), threshold=0.5),
        Regression("spend"),
    )


def every_feature_table(rows: int, *, seed: int = 0) -> pa.Table:
    """A table for ``every_feature_bundle``: ids, all feature kinds, some values missing and some categories unseen."""
    random = np.random.default_rng(seed)
    amounts = random.gamma(2.0, 40.0, rows)
    return pa.table(
        {
            "id": pa.array([f"E{row:05d}" for row in range(rows)]),
            "age": pa.array(random.integers(18, 90, rows), pa.int32()),
            "amount": pa.array([None if row % 7 == 3 else float(amounts[row]) for row in range(rows)]),  # noqa: PLR2004
            "contract": pa.array([["month", "year", "two years", None][code] for code in random.integers(0, 4, rows)]),
            "region": pa.array(random.integers(1, 4, rows)),
            "member": pa.array([[True, False, None][code] for code in random.integers(0, 3, rows)]),
            "embedding": pa.array(random.normal(size=(rows, 4)).astype(np.float32).tolist(), pa.list_(pa.float32(), 4)),
            "tokens": pa.array(random.integers(0, 10, (rows, 6)).tolist(), pa.list_(pa.int64(), 6)),
            "mask": pa.array((random.random((rows, 6)) < 0.7).tolist(), pa.list_(pa.bool_(), 6)),  # noqa: PLR2004
        }
    )


def _features() -> tuple[Numeric | Categorical | Boolean | Tensor, ...]:
    return (
        Numeric("age", standardise=True),
        Numeric("amount", missing="indicator", clip=(0.0, 1000.0), log1p=True, standardise=True),
        Categorical("contract", vocabulary=("month", "year", "two years")),
        Categorical("region", vocabulary=(1, 2, 3), unseen="reject", encoding="onehot"),
        Boolean("member", missing="indicator"),
        Tensor("embedding", shape=(4,)),
        Tensor("tokens", shape=(6,), dtype="int64", minimum=0, maximum=9),
        Tensor("mask", shape=(6,), dtype="bool"),
    )


class _Everything(nn.Module):
    def __init__(self, dense: int, cardinalities: tuple[int, ...], columns: int) -> None:
        super().__init__()
        self.categories = nn.ModuleList(_embedding(size, 3) for size in cardinalities)
        self.tokens = _embedding(10, 3)
        self.last = _linear(dense + 3 * len(cardinalities) + 4 + 3, columns)

    def forward(
        self,
        dense: torch.Tensor,
        codes: torch.Tensor,
        embedding: torch.Tensor,
        tokens: torch.Tensor,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        categories = [table(codes[:, place]) for place, table in enumerate(self.categories)]
        weight = mask.to(torch.float32).unsqueeze(2)
        pooled = (self.tokens(tokens) * weight).sum(1) / weight.sum(1).clamp(min=1)
        return self.last(torch.cat([dense, *categories, embedding, pooled], 1))  # type: ignore[no-any-return]


def _linear(width: int, columns: int) -> nn.Linear:
    layer = nn.Linear(width, columns)
    _seed(layer)
    return layer


def _embedding(size: int, width: int) -> nn.Embedding:
    layer = nn.Embedding(size, width)
    _seed(layer)
    return layer


def _seed(layer: nn.Module) -> None:
    """Known weights without torch's process-wide generator, which belongs to the test."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)
