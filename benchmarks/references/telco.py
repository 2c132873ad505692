"""The bundle's model as plain PyTorch: the same weights, the preprocessing by hand. What the references score with."""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from examples.telco_churn.train import ChurnModel
from shared.bundle import GRAPH, load_bundle
from shared.fitted import Fitted
from shared.schema import Categorical, Numeric

_MODULE = "module."


class Telco:
    """One row at a time, or tensors of many: eager, in inference mode, with one thread."""

    def __init__(self, bundle: Path) -> None:
        torch.set_num_threads(1)
        found = load_bundle(bundle)
        fitted = found.fitted
        self.model = ChurnModel(fitted.dense_width, fitted.cardinalities).eval()
        state = torch.export.load(io.BytesIO(found.read(GRAPH))).state_dict
        self.model.load_state_dict({name[len(_MODULE) :]: each for name, each in state.items() if _MODULE in name})
        self.vocabularies: dict[str, dict[Any, int]] = {
            name: {word: code for code, word in enumerate(words)} for name, words in fitted.vocabularies.items()
        }
        self.numbers = {name: (each.fill, each.mean, each.std) for name, each in fitted.numeric.items()}
        self.logged = {each.name for each in fitted.schema.features if isinstance(each, Numeric) and each.log1p}
        self.dense, self.categories = _names(fitted)

    def score(self, row: Mapping[str, Any]) -> float:
        """The probability of one customer."""
        dense = torch.tensor([[self.number(name, row.get(name)) for name in self.dense]])
        codes = torch.tensor([[self.code(name, row.get(name)) for name in self.categories]])
        return float(self.probabilities(dense, codes)[0])

    def probabilities(self, dense: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """Of many: float32 [rows]."""
        with torch.inference_mode():
            scores: torch.Tensor = torch.sigmoid(self.model(dense, codes))
            return scores

    def number(self, name: str, value: Any) -> float:
        """A numeric or boolean feature as the model takes it."""
        if name not in self.numbers:
            return float(value)
        fill, mean, std = self.numbers[name]
        number = fill if value is None else value
        return float(((math.log1p(number) if name in self.logged else number) - mean) / std)

    def code(self, name: str, value: Any) -> int:
        """A categorical feature as the model takes it: its place, or that of the unseen, or of the missing."""
        words = self.vocabularies[name]
        return len(words) + 1 if value is None else words.get(value, len(words))


def _names(fitted: Fitted) -> tuple[list[str], list[str]]:
    features = fitted.schema.features
    dense = [each.name for each in features if not isinstance(each, Categorical)]
    return dense, [each.name for each in features if isinstance(each, Categorical)]
