"""The mathematics between decoded values and scores: torch operations and buffers, exported as one graph.

``Preprocess`` fills, clips, logs, standardises and spreads one-hot columns; the user's module follows; the activation
of each output comes last. There is no Python control flow on data, so that the batch dimension stays dynamic.
"""

from dataclasses import dataclass
from itertools import accumulate, count

import pyarrow as pa
import torch
from torch import Tensor, nn

from shared.encode import Encoder
from shared.errors import SchemaError, WrongShape
from shared.fitted import Fitted, NumericFit
from shared.rounding import settle_rounding
from shared.rules import nearest_float32
from shared.schema import Binary, Boolean, Categorical, MultiClass, MultiLabel, Numeric, Output, Regression, Schema
from shared.schema import Tensor as TensorFeature


class _Numeric(nn.Module):
    """One numeric column [n] -> its dense columns [n, 1 or 2]: fill, clip, log1p, standardise, indicator."""

    fill: Tensor
    lower: Tensor
    upper: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, feature: Numeric, numbers: NumericFit) -> None:
        super().__init__()
        self.has_clip, self.has_log1p = feature.clip is not None, feature.log1p
        self.is_standardised, self.has_indicator = feature.standardise, feature.missing == "indicator"
        lower, upper = feature.clip or (0.0, 0.0)
        for name, value in (
            ("fill", numbers.fill),
            ("lower", lower),
            ("upper", upper),
            ("mean", numbers.mean),
            ("std", numbers.std),
        ):
            self.register_buffer(name, torch.tensor(nearest_float32(value), dtype=torch.float32))

    def forward(self, column: Tensor) -> Tensor:
        missing = torch.isnan(column)
        values = torch.where(missing, self.fill, column)
        if self.has_clip:
            values = torch.minimum(torch.maximum(values, self.lower), self.upper)
        if self.has_log1p:
            values = torch.log1p(values)
        if self.is_standardised:
            values = (values - self.mean) / self.std
        columns = [values, missing.to(torch.float32)] if self.has_indicator else [values]
        return torch.stack(columns, dim=1)


class _Boolean(nn.Module):
    """One boolean column [n] of 1, 0 and NaN -> its dense columns [n, 1 or 2]."""

    fill: Tensor

    def __init__(self, feature: Boolean) -> None:
        super().__init__()
        self.has_indicator = feature.missing == "indicator"
        self.register_buffer("fill", torch.tensor(1.0 if feature.missing == "true" else 0.0, dtype=torch.float32))

    def forward(self, column: Tensor) -> Tensor:
        missing = torch.isnan(column)
        values = torch.where(missing, self.fill, column)
        columns = [values, missing.to(torch.float32)] if self.has_indicator else [values]
        return torch.stack(columns, dim=1)


class _OneHot(nn.Module):
    """One column of codes [n] -> one dense column for each code [n, cardinality]."""

    labels: Tensor

    def __init__(self, cardinality: int) -> None:
        super().__init__()
        self.register_buffer("labels", torch.arange(cardinality, dtype=torch.int64))

    def forward(self, column: Tensor) -> Tensor:
        return (column.unsqueeze(1) == self.labels).to(torch.float32)


class Preprocess(nn.Module):
    """Decoded inputs -> what the user's module takes.

    Gives, each only if the schema has it: the dense columns float32 [n, width] in the schema's order, the codes of the
    index-encoded categoricals int64 [n, m], and the tensors as they came.
    """

    index_places: Tensor

    def __init__(self, fitted: Fitted) -> None:
        super().__init__()
        schema = fitted.schema
        self.has_numeric, self.has_codes = bool(schema.dense_inputs), bool(schema.categoricals)
        self.dense = nn.ModuleList()
        self._sources: list[tuple[int, int]] = []
        """For each dense module: the part its column comes from (0 numeric, 1 codes), and its place there."""
        index: list[int] = []
        places = (count(), count())
        for feature in schema.features:
            if isinstance(feature, TensorFeature):
                continue
            part = int(isinstance(feature, Categorical))
            place = next(places[part])
            if isinstance(feature, Categorical) and feature.encoding == "index":
                index.append(place)
                continue
            self.dense.append(_dense(feature, fitted))
            self._sources.append((part, place))
        self.has_index = bool(index)
        self.register_buffer("index_places", torch.tensor(index, dtype=torch.int64))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        numeric = inputs[0] if self.has_numeric else None
        codes = inputs[int(self.has_numeric)] if self.has_codes else None
        parts = (numeric, codes)
        given: list[Tensor] = []
        columns = [
            module(part[:, place])
            for module, (which, place) in zip(self.dense, self._sources, strict=True)
            if (part := parts[which]) is not None
        ]
        if columns:
            given.append(torch.cat(columns, dim=1))
        if self.has_index and codes is not None:
            given.append(torch.index_select(codes, 1, self.index_places))
        return (*given, *inputs[int(self.has_numeric) + int(self.has_codes) :])


class ScoringGraph(nn.Module):
    """Decoded inputs -> scores float32 [n, columns]: preprocessing, the user's module, the activations.

    The module is called with ``Preprocess``'s outputs and returns logits: [n, columns], or [n] where there is one
    column, or a tuple or list with one such tensor for each output.
    """

    def __init__(self, fitted: Fitted, module: nn.Module) -> None:
        super().__init__()
        self.outputs = fitted.schema.outputs
        self.preprocess = Preprocess(fitted)
        self.module = module

    def forward(self, *inputs: Tensor) -> Tensor:
        logits = self._logits(self.module(*self.preprocess(*inputs)))
        scores = [_activated(output, each) for output, each in zip(self.outputs, logits, strict=True)]
        return torch.cat(scores, dim=1)

    def _logits(self, returned: object) -> list[Tensor]:
        """One float32 tensor [n, columns of the output] for each output."""
        widths = [len(output.columns) for output in self.outputs]
        if isinstance(returned, tuple | list):
            if len(returned) != len(widths):
                raise WrongShape(f"the module returned {len(returned)} tensors; the schema has {len(widths)} outputs")
            names = [f"output {output.name}" for output in self.outputs]
            return [_matrix(each, width, name) for each, width, name in zip(returned, widths, names, strict=True)]
        matrix = _matrix(returned, sum(widths), "the schema")
        ends = list(accumulate(widths))
        return [matrix[:, end - width : end] for width, end in zip(widths, ends, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingTensors:
    """What the module will be given, for training code; ``rows`` are the positions in the table of the usable rows."""

    inputs: tuple[Tensor, ...]
    rows: Tensor


def training_tensors(fitted: Fitted, table: pa.Table) -> TrainingTensors:
    """Turns a table into the module's inputs, by the encoder and the preprocessing that will serve."""
    settle_rounding()  # training comes next, and makes the process's first products
    encoded = Encoder(fitted).columns(table)
    with torch.no_grad():
        inputs = Preprocess(fitted)(*map(torch.from_numpy, encoded.inputs()))
    return TrainingTensors(inputs=inputs, rows=torch.from_numpy(encoded.rows))


def check_activation(schema: Schema, module: nn.Module) -> None:
    """Refuses a module that ends with an activation where the last output applies its own. Raises: SchemaError."""
    leaves = [each for each in module.modules() if not any(True for _ in each.children())]
    output = schema.outputs[-1]
    activation = getattr(output, "activation", "none")
    if activation != "none" and isinstance(leaves[-1], nn.Sigmoid | nn.Softmax):
        raise SchemaError(
            f"output {output.name}: the module ends with {type(leaves[-1]).__name__} and the output applies "
            f"{activation} again: let the module return logits, or say activation='none'"
        )


def _dense(feature: Numeric | Boolean | Categorical, fitted: Fitted) -> nn.Module:
    match feature:
        case Numeric():
            return _Numeric(feature, fitted.numeric[feature.name])
        case Boolean():
            return _Boolean(feature)
        case Categorical():
            return _OneHot(fitted.cardinality(feature))


def _activated(output: Output, logits: Tensor) -> Tensor:
    match output:
        case Regression() | Binary(activation="none") | MultiClass(activation="none") | MultiLabel(activation="none"):
            return logits
        case MultiClass():
            return torch.softmax(logits, dim=1)
        case _:
            return torch.sigmoid(logits)


def _matrix(returned: object, width: int, whose: str) -> Tensor:
    """What the module returned for ``width`` columns, as float32 [n, width]."""
    if not isinstance(returned, Tensor):
        raise WrongShape(f"the module returned {type(returned).__name__}; it must return tensors")
    matrix = returned.unsqueeze(1) if returned.dim() == 1 else returned
    if matrix.shape[1:] != (width,):
        shape = ", ".join(["n", *map(str, returned.shape[1:])])
        raise WrongShape(f"the module returned a tensor of shape [{shape}]; {whose} has {width} columns")
    return matrix.to(torch.float32)
