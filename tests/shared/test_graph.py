"""The mathematics in front of the user's module and behind it."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

from shared.encode import Encoder
from shared.errors import SchemaError, WrongShape
from shared.fit import Fitted, fit
from shared.graph import Preprocess, ScoringGraph, check_activation, training_tensors
from shared.schema import (
    Binary,
    Boolean,
    Categorical,
    Feature,
    MultiClass,
    MultiLabel,
    Numeric,
    Output,
    Regression,
    Schema,
)
from shared.schema import Tensor as TensorFeature

EVERYTHING: tuple[Feature, ...] = (
    Numeric("a", missing="indicator", clip=(-0.5, 40), log1p=True, standardise=True),
    Categorical("b", vocabulary=("x", "y"), encoding="onehot"),
    TensorFeature("c", shape=(2, 2), missing="zeros"),
    Boolean("d", missing="indicator"),
    Categorical("e", vocabulary=(1, 2)),
    Numeric("f", missing="median"),
    Categorical("g", vocabulary=("p",), unseen="reject"),
    TensorFeature("h", shape=(3,), dtype="int64"),
)
OUTPUTS: tuple[Output, ...] = (
    Binary("churn"),
    MultiClass("segment", classes=("a", "b", "c")),
    MultiLabel("wants", classes=("x", "y")),
    Regression("spend"),
)
LOGITS = torch.tensor([[0.5, 1.0, 2.0, 3.0, -1.0, 1.0, 7.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -7.0]])
SCORES = torch.cat(
    [LOGITS[:, :1].sigmoid(), LOGITS[:, 1:4].softmax(dim=1), LOGITS[:, 4:6].sigmoid(), LOGITS[:, 6:]], dim=1
)


def fitted(
    features: tuple[Feature, ...], table: pa.Table | None = None, outputs: tuple[Output, ...] = OUTPUTS
) -> Fitted:
    return fit(Schema(features=features, outputs=outputs), table)


def table(rows: int = 40) -> pa.Table:
    """Usable rows with every value that the features know: missing, unseen, extreme."""
    random = np.random.default_rng(7)
    return pa.table(
        {
            "a": pa.array(random.normal(10, 20, rows), mask=random.random(rows) < 0.2),
            "b": random.choice(["x", "y", "z", ""], rows),
            "c": [None, *([[1.0, 2.0], [3.0, float(row)]] for row in range(rows - 1))],
            "d": random.choice(["true", "0", ""], rows),
            "e": random.integers(0, 4, rows),
            "f": [None, *random.integers(0, 100, rows - 1).tolist()],
            "g": random.choice(["p", ""], rows),
            "h": random.integers(0, 9, (rows, 3)).tolist(),
        }
    )


def preprocess(feature: Feature, values: list[Any]) -> Tensor:
    """The dense columns that one feature becomes."""
    given = training_tensors(fitted((feature,), pa.table({feature.name: values})), pa.table({feature.name: values}))
    assert len(given.inputs) == 1
    return given.inputs[0]


class Given(nn.Module):
    """Returns what it was built with, whatever comes."""

    def __init__(self, returned: Any) -> None:
        super().__init__()
        self.returned = returned

    def forward(self, *_: Tensor) -> Any:
        return self.returned


class Net(nn.Module):
    """A module that uses everything that ``EVERYTHING`` gives it."""

    def __init__(self, fitted: Fitted) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 3) for size in fitted.cardinalities)
        self.token = nn.Embedding(9, 2)
        self.last = nn.Linear(fitted.dense_width + 3 * len(self.embeddings) + 4 + 6, len(fitted.schema.columns))

    def forward(self, dense: Tensor, codes: Tensor, image: Tensor, tokens: Tensor) -> Tensor:
        embedded = [embedding(codes[:, place]) for place, embedding in enumerate(self.embeddings)]
        return self.last(torch.cat([dense, *embedded, image.flatten(1), self.token(tokens).flatten(1)], dim=1))


@pytest.mark.parametrize(
    ("feature", "values", "dense"),
    [
        (Numeric("a"), [1.5, -0.0], [[1.5], [0.0]]),
        (Numeric("a", missing="mean"), [1.0, None, 3.0], [[1.0], [2.0], [3.0]]),
        (Numeric("a", missing="median"), [1.0, None, 3.0, 9.0], [[1.0], [3.0], [3.0], [9.0]]),
        (Numeric("a", missing="constant", fill=7), [1.0, None], [[1.0], [7.0]]),
        (Numeric("a", missing="indicator"), [1.0, None, 3.0], [[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]]),
        (Numeric("a", clip=(0, 5)), [-1.0, 3.0, 9.0], [[0.0], [3.0], [5.0]]),
        (Numeric("a", clip=(-1e300, 1e300)), [-3e38, 3e38], [[-3e38], [3e38]]),
        (Numeric("a", missing="constant", fill=9, clip=(0, 5)), [None], [[5.0]]),
        (Numeric("a", log1p=True), [0.0, 1.0], [[0.0], [float(np.log(2))]]),
        (Numeric("a", standardise=True), [1.0, 3.0], [[-1.0], [1.0]]),
        (Numeric("a", standardise=True), [5.0, 5.0], [[0.0], [0.0]]),
        (Numeric("a", missing="mean", standardise=True), [1.0, None, 3.0], [[-(1.5**0.5)], [0.0], [1.5**0.5]]),
        (Boolean("a"), [True, False], [[1.0], [0.0]]),
        (Boolean("a", missing="false"), [True, None], [[1.0], [0.0]]),
        (Boolean("a", missing="true"), [False, None], [[0.0], [1.0]]),
        (Boolean("a", missing="indicator"), [True, None], [[1.0, 0.0], [0.0, 1.0]]),
        (
            Categorical("a", vocabulary=("x", "y"), encoding="onehot"),
            ["y", "x", "z", ""],
            [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
        ),
    ],
)
def test_a_feature_becomes_its_columns(feature: Feature, values: list[Any], dense: list[list[float]]) -> None:
    """Fill, clip, log1p, standardise, indicator and one-hot do what the schema says, in this order."""
    columns = preprocess(feature, values)
    assert columns.dtype == torch.float32
    torch.testing.assert_close(columns, torch.tensor(dense, dtype=torch.float32))


def test_inputs_reach_the_module_in_order() -> None:
    """Dense columns are in the schema's order, index codes follow, then the tensors as they came."""
    data = table()
    known = fitted(EVERYTHING, data)
    given = training_tensors(known, data)
    dense, codes, image, tokens = given.inputs
    assert dense.shape == (40, known.dense_width)
    alone = [preprocess(each, data[each.name].to_pylist()) for each in EVERYTHING if known.width(each)]
    assert torch.equal(dense, torch.cat(alone, dim=1))
    assert codes.dtype == torch.int64
    assert codes.tolist() == Encoder(known).columns(data).codes[:, 1:].tolist()
    assert image.tolist()[:2] == [[[0, 0], [0, 0]], [[1, 2], [3, 0]]]
    assert tokens.tolist() == data["h"].to_pylist()


@pytest.mark.parametrize(
    ("feature", "values", "shapes"),
    [
        (Numeric("a"), [1.0], [(1, 1)]),
        (Categorical("a", vocabulary=("x",)), ["x"], [(1, 1)]),
        (Categorical("a", vocabulary=("x",), encoding="onehot"), ["x"], [(1, 3)]),
        (TensorFeature("a", shape=(2, 3)), [[[1, 2, 3], [4, 5, 6]]], [(1, 2, 3)]),
    ],
)
def test_what_the_schema_lacks_is_not_given(feature: Feature, values: list[Any], shapes: list[tuple[int, ...]]) -> None:
    """A module is called with the tensors that its schema has, and with no empty ones."""
    data = pa.table({"a": values})
    assert [tuple(part.shape) for part in training_tensors(fitted((feature,), data), data).inputs] == shapes


def test_training_tensors_tell_their_rows() -> None:
    """Training code finds its targets by the positions of the usable rows."""
    data = pa.table({"a": ["1", "x", "3"]})
    given = training_tensors(fitted((Numeric("a"),)), data)
    assert given.rows.tolist() == [0, 2]
    assert given.inputs[0].tolist() == [[1.0], [3.0]]


@pytest.mark.parametrize(
    "returned",
    [
        LOGITS,
        LOGITS.double(),
        (LOGITS[:, :1], LOGITS[:, 1:4], LOGITS[:, 4:6], LOGITS[:, 6:]),
        [LOGITS[:, 0], LOGITS[:, 1:4], LOGITS[:, 4:6], LOGITS[:, 6]],
    ],
    ids=["matrix", "float64", "tuple", "list of columns"],
)
def test_each_output_has_its_activation(returned: Any) -> None:
    """Sigmoid, softmax, sigmoid each, and nothing; whether the module returns one tensor or one for each output."""
    scores = ScoringGraph(fitted((Numeric("a"),)), Given(returned))(torch.zeros(2, 1))
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, SCORES)


def test_no_activation_leaves_the_module_the_last_word() -> None:
    """With activation none, what the module returns is the score."""
    outputs = (
        Binary("churn", activation="none"),
        MultiClass("segment", classes=("a", "b", "c"), activation="none"),
        MultiLabel("wants", classes=("x", "y"), activation="none"),
        Regression("spend"),
    )
    scores = ScoringGraph(fitted((Numeric("a"),), outputs=outputs), Given(LOGITS))(torch.zeros(2, 1))
    assert torch.equal(scores, LOGITS)


def test_one_column_may_be_returned_flat() -> None:
    """A module with one score may return [n]."""
    graph = ScoringGraph(fitted((Numeric("a"),), outputs=(Regression("y"),)), Given(torch.tensor([1.0, 2.0])))
    assert graph(torch.zeros(2, 1)).tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (LOGITS[:, :6], r"shape \[n, 6\]; the schema has 7 columns"),
        (LOGITS[:, 0], r"shape \[n\]; the schema has 7 columns"),
        (LOGITS.unsqueeze(0), r"shape \[n, 2, 7\]"),
        ((LOGITS,), "returned 1 tensors; the schema has 4 outputs"),
        ((LOGITS[:, 0], LOGITS[:, 1:3], LOGITS[:, 4:6], LOGITS[:, 6]), "output segment has 3 columns"),
        ("scores", "returned str"),
    ],
)
def test_another_shape_is_refused(returned: Any, why: str) -> None:
    """A module that does not return what the schema says is refused by name and number."""
    with pytest.raises(WrongShape, match=why):
        ScoringGraph(fitted((Numeric("a"),)), Given(returned))(torch.zeros(2, 1))


def test_the_exported_graph_gives_the_same_bits_at_any_size() -> None:
    """The whole graph exports with a dynamic batch dimension, is read back, and gives what it gave before."""
    data = table(64)
    known = fitted(EVERYTHING, data)
    torch.manual_seed(0)
    graph = ScoringGraph(known, Net(known)).eval()
    inputs = tuple(map(torch.from_numpy, Encoder(known).columns(data).inputs()))
    rows = torch.export.Dim("rows", min=1, max=4096)
    with torch.no_grad():
        program = torch.export.export(graph, inputs, dynamic_shapes=(tuple({0: rows} for _ in inputs),))
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(file).module()
        for size in (1, 2, 16, 64):
            part = tuple(tensor[:size] for tensor in inputs)
            assert torch.equal(loaded(*part), graph(*part))


def test_every_number_is_a_buffer() -> None:
    """What was learnt moves to a device with the module, and is no parameter that training would change."""
    known = fitted(EVERYTHING, table())
    module = Preprocess(known)
    assert not list(module.parameters())
    assert {buffer.dtype for buffer in module.buffers()} == {torch.float32, torch.int64}
    assert all(buffer.device.type == "meta" for buffer in module.to("meta").buffers())


@pytest.mark.parametrize(
    ("output", "last"),
    [
        (Binary("y"), nn.Sigmoid()),
        (MultiLabel("y", classes=("a",)), nn.Sigmoid()),
        (MultiClass("y", classes=("a", "b")), nn.Softmax(dim=1)),
    ],
)
def test_an_activation_is_not_applied_twice(output: Output, last: nn.Module) -> None:
    """A module that squashes its output itself is refused, and the error says both ways out."""
    schema = Schema(features=(Numeric("a"),), outputs=(output,))
    for module in (last, nn.Sequential(nn.Linear(1, 2), last)):
        with pytest.raises(
            SchemaError, match=r"output y: the module ends with .* return logits, or say activation='none'"
        ):
            check_activation(schema, module)


@pytest.mark.parametrize(
    ("output", "module"),
    [
        (Binary("y"), nn.Linear(1, 1)),
        (Binary("y"), nn.Sequential(nn.Sigmoid(), nn.Linear(1, 1))),
        (Binary("y", activation="none"), nn.Sequential(nn.Linear(1, 1), nn.Sigmoid())),
        (Regression("y"), nn.Sequential(nn.Linear(1, 1), nn.Sigmoid())),
    ],
)
def test_other_endings_are_let_through(output: Output, module: nn.Module) -> None:
    """Logits, hidden activations, and outputs without an activation of their own are well."""
    check_activation(Schema(features=(Numeric("a"),), outputs=(output,)), module)


def test_the_purchase_model_is_right() -> None:
    """Weights 0.8, -0.4, 0.6 and bias -0.2 give the scores that are known by hand."""
    features = (Numeric("visits"), Numeric("returns"), Numeric("basket"))
    linear = nn.Linear(3, 1)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[0.8, -0.4, 0.6]]))
        linear.bias.fill_(-0.2)
    known = fitted(features, outputs=(Binary("buys", threshold=0.5),))
    rows = pa.table({"visits": [1, 0, 2, 1], "returns": [0, 3, 1, 1], "basket": [2, 1, 0, 1]})
    inputs = tuple(map(torch.from_numpy, Encoder(known).columns(rows).inputs()))
    with torch.no_grad():
        scores = ScoringGraph(known, linear).eval()(*inputs)
    assert [round(score, 4) for score in scores[:, 0].tolist()] == [0.8581, 0.31, 0.7311, 0.69]
