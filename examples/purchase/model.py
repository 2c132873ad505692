"""The smallest model: three features, fixed weights, a sigmoid. Every score can be checked by hand.

Build it with ``forescore bundle build examples.purchase.model:bundle OUT_BUNDLE``.
"""

import pyarrow as pa
import torch
from torch import nn

from forescore import Binary, BundleSpec, Numeric, Schema, fit

SCHEMA = Schema(
    entity="customer_id",
    features=[Numeric("visits"), Numeric("returns"), Numeric("basket")],
    outputs=[Binary("buys", threshold=0.5)],
)


def bundle() -> BundleSpec:
    """A linear layer with the weights written down; the output's sigmoid is applied behind it."""
    module = nn.Linear(3, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.8, -0.4, 0.6]]))
        module.bias.fill_(-0.2)
    golden = pa.table({"visits": [1, 0, 2, 1, 40], "returns": [0, 3, 1, 1, 0], "basket": [2.0, 1.0, 0.0, 1.0, 0.5]})
    return BundleSpec(name="purchase", version="1", fitted=fit(SCHEMA), module=module.eval(), golden=golden)
