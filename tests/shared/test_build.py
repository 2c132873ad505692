import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from shared.build import BundleSpec, build_bundle, build_from, require_free
from shared.bundle import GOLDEN, GRAPH, Bundle, load_bundle
from shared.errors import BundleConflict, BundleError, ColumnMissing, SchemaError
from shared.fit import fit
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
    Tensor,
)
from shared.scorer import open_scorer
from shared.testing.bundles import every_feature_bundle, every_feature_table, every_output, purchase_bundle

Build = Callable[..., Bundle]


class Lambda(nn.Module):
    """A module of one function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, dense: torch.Tensor) -> torch.Tensor:
        return self.function(dense)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds a bundle of three numbers around a module."""

    def make(module: nn.Module, *, outputs: tuple[Output, ...] = (Regression("y"),), rows: int = 64) -> Bundle:
        schema = Schema(features=tuple(Numeric(name) for name in "abc"), outputs=outputs)
        values = np.random.default_rng(0).normal(size=(rows, 3))
        golden = pa.table({name: values[:, place] for place, name in enumerate("abc")})
        return build_bundle(tmp_path / "out", name="m", version="1", fitted=fit(schema), module=module, golden=golden)

    return make


def golden_of(bundle: Bundle) -> pa.Table:
    return pq.read_table(io.BytesIO(bundle.read(GOLDEN)))


def test_the_parts_are_in_the_bundle(tmp_path: Path) -> None:
    """Name, version, time of building and the code's revision are recorded."""
    schema = Schema(features=(Numeric("a"),), outputs=(Regression("y"),))
    spec = BundleSpec(
        name="m",
        version="2026.11",
        fitted=fit(schema),
        module=nn.Linear(1, 1).eval(),
        golden=pa.table({"a": [1.0, 2.0]}),
        code_revision="abc123",
    )
    bundle = build_from(spec, tmp_path / "out", now=lambda: datetime(2026, 11, 30, tzinfo=UTC))
    assert (bundle.name, bundle.version, bundle.manifest.code_revision) == ("m", "2026.11", "abc123")
    assert bundle.manifest.created_at == "2026-11-30T00:00:00+00:00"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_golden_rows_cover_what_the_rules_allow(everything: Bundle) -> None:
    """Golden rows show missing and unseen values, every category, and the table's extremes."""
    table = golden_of(everything)
    assert table.num_rows == everything.manifest.golden_rows >= 32
    contracts = set(table["contract"].to_pylist())
    assert contracts == {"month", "year", "two years", "unseen", None}
    assert set(table["region"].to_pylist()) == {1, 2, 3, None}
    assert set(table["member"].to_pylist()) == {True, False, None}
    assert None in table["amount"].to_pylist()
    source = every_feature_table(64)
    assert max(source["age"].to_pylist()) in table["age"].to_pylist()
    assert min(source["age"].to_pylist()) in table["age"].to_pylist()


def test_ids_and_other_columns_stay_out_of_the_bundle(everything: Bundle) -> None:
    """Golden rows hold features only: an id names a person."""
    assert not {"id"} & set(golden_of(everything).column_names)


@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_there_are_enough_golden_rows(build: Build, rows: int) -> None:
    """A bundle has at least 32 golden rows, from however few, and not many more than it needs."""
    bundle = build(nn.Linear(3, 1).eval(), rows=rows)
    assert 32 <= bundle.manifest.golden_rows <= 512


def test_building_twice_gives_the_same_graph(tmp_path: Path) -> None:
    """The same parts give the same graph and the same golden rows, byte for byte."""
    first = every_feature_bundle(tmp_path / "first")
    second = every_feature_bundle(tmp_path / "second")
    assert first.manifest.files == second.manifest.files


@pytest.mark.parametrize("output", every_output(), ids=lambda output: output.kind)
def test_every_kind_of_output_is_served(tmp_path: Path, output: Output) -> None:
    """A bundle of each output kind alone scores with its columns, in their domain."""
    scorer = open_scorer(every_feature_bundle(tmp_path / "out", outputs=(output,)), device="cpu")
    scores = scorer.score(scorer.encoder.columns(every_feature_table(20, seed=5)))
    assert scores.shape == (20, len(output.columns))
    if isinstance(output, MultiClass):
        assert np.allclose(scores.sum(axis=1), 1)
    if not isinstance(output, Regression):
        assert ((scores >= 0) & (scores <= 1)).all()


@pytest.mark.parametrize(
    ("feature", "values", "width"),
    [
        (Numeric("x", missing="mean"), [1.0, None, 3.0], 1),
        (Boolean("x", missing="true"), [True, None, False], 1),
        (Categorical("x", vocabulary=("a", "b"), encoding="onehot"), ["a", "b", None], 4),
        (Categorical("x", vocabulary=(1, 2)), [1, 2, 9], 1),
        (Tensor("x", shape=(2, 2), missing="zeros"), [[[1.0, 2.0], [3.0, 4.0]], None, [[0.0, 0.0], [0.0, 1.0]]], 4),
    ],
    ids=["numeric", "boolean", "onehot", "index", "tensor"],
)
def test_every_kind_of_feature_stands_alone(tmp_path: Path, feature: Feature, values: list[object], width: int) -> None:
    """A schema of one feature of any kind can be built and scored."""
    table = pa.table({"x": values})
    schema = Schema(features=(feature,), outputs=(Regression("y"),))
    module = nn.Sequential(Lambda(lambda each: each.to(torch.float32).flatten(1)), nn.Linear(width, 1)).eval()
    bundle = build_bundle(
        tmp_path / "out", name="m", version="1", fitted=fit(schema, table), module=module, golden=table
    )
    scorer = open_scorer(bundle, device="cpu")
    assert scorer.score(scorer.encoder.columns(table)).shape == (3, 1)


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(3, 1),
        nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 1)),
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)),
    ],
)
def test_training_mode_is_refused(build: Build, module: nn.Module) -> None:
    """M2: eval() forgotten is an error, and is not repaired in silence."""
    with pytest.raises(BundleError, match=r"training mode.*eval\(\)"):
        build(module)


def test_one_part_in_training_mode_is_refused(build: Build) -> None:
    """M2: the part that is still in training mode is named."""
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 1)).eval()
    module[1].train()
    with pytest.raises(BundleError, match="its part '1'"):
        build(module)


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: nn.functional.dropout(x, 0.5, training=True)[:, :1],
    "alpha dropout": lambda x: nn.functional.alpha_dropout(x, 0.5, training=True)[:, :1],
    "rand_like": lambda x: x[:, :1] + torch.rand_like(x[:, :1]),
    "randn": lambda x: x[:, :1] + torch.randn(1),
    "bernoulli": lambda x: torch.bernoulli(torch.sigmoid(x))[:, :1],
    "multinomial": lambda x: torch.multinomial(torch.softmax(x, 1), 1).to(torch.float32),
    "attention": lambda x: nn.functional.scaled_dot_product_attention(
        x[:, :, None], x[:, :, None], x[:, :, None], dropout_p=0.5
    )[:, 0],
}


@pytest.mark.parametrize("function", RANDOM.values(), ids=RANDOM.keys())
def test_what_is_random_is_refused(build: Build, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A score that another call would not repeat is never built."""
    with pytest.raises(BundleError, match=r"random|training mode"):
        build(Lambda(function).eval())


def test_rows_that_look_at_one_another_are_refused(build: Build) -> None:
    """M2: whatever the mode, a row's score must not depend on its neighbours."""
    with pytest.raises(BundleError, match="depends on the rows beside it"):
        build(Lambda(lambda x: x[:, :1] - x[:, :1].mean()).eval())


def test_batch_statistics_are_refused(build: Build) -> None:
    """M2: a batch norm without running statistics takes those of the batch, also in eval mode."""
    module = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 1)).eval()
    with pytest.raises(BundleError, match="training mode"):
        build(module)


def test_trained_batch_norm_and_dropout_are_served(build: Build) -> None:
    """Layers that are only dangerous in training mode are fine in eval mode."""
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.LayerNorm(3), nn.Linear(3, 1)).eval()
    assert open_scorer(build(module), device="cpu").columns == ("y",)


def test_recurrent_and_attention_layers_are_served(tmp_path: Path) -> None:
    """Token ids with their mask go through an LSTM and an encoder layer, and score alike in any company."""

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 8)
            self.recurrent = nn.LSTM(8, 8, batch_first=True)
            self.attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.last = nn.Linear(8, 1)

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            states, _ = self.recurrent(self.table(tokens))
            return self.last(self.attention(states, src_key_padding_mask=~mask)[:, 0])  # type: ignore[no-any-return]

    features = (Tensor("tokens", shape=(6,), dtype="int64"), Tensor("mask", shape=(6,), dtype="bool"))
    schema = Schema(features=features, outputs=(Binary("y"),))
    table = every_feature_table(40)
    table = table.set_column(table.column_names.index("mask"), "mask", [[[True] * 6] * 40])
    bundle = build_bundle(
        tmp_path / "out", name="m", version="1", fitted=fit(schema), module=Tokens().eval(), golden=table
    )
    scorer = open_scorer(bundle, device="cpu")
    rows = scorer.encoder.columns(table)
    assert scorer.score(rows.take(np.array([7]))).tobytes() == scorer.score(rows)[7:8].tobytes()


FIXED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda x: x.view(3, 3)[:, :1],
    "constant": lambda x: x[:, :1] + torch.zeros(3, 1),
    "condition": lambda x: x[:, :1] if x.shape[0] == 3 else x[:, 1:2],
}


@pytest.mark.parametrize("function", FIXED.values(), ids=FIXED.keys())
def test_a_fixed_number_of_rows_is_refused(build: Build, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A module that was written for one batch size is told so."""
    with pytest.raises(BundleError, match="number of rows"):
        build(Lambda(function).eval())


def test_another_number_of_columns_is_refused(build: Build) -> None:
    """A module whose output does not fit the schema is told both numbers."""
    with pytest.raises(BundleError, match="the schema has 1 columns"):
        build(nn.Linear(3, 2).eval())


def test_a_module_that_raises_is_refused_in_one_line(build: Build) -> None:
    """What the module raises becomes one line."""

    def fail(_: torch.Tensor) -> torch.Tensor:
        raise ValueError("no\nway")

    with pytest.raises(BundleError, match="cannot be exported") as caught:
        build(Lambda(fail).eval())
    assert "\n" not in str(caught.value)


def test_a_state_that_calls_change_is_refused(build: Build) -> None:
    """A module that counts its calls would not give the same score twice."""

    class Counting(nn.Module):
        count: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x[:, :1] + self.count

    with pytest.raises(BundleError, match="cannot be bundled"):
        build(Counting().eval())


def test_a_golden_score_is_finite(build: Build) -> None:
    """A model that gives NaN for the golden rows is not built."""
    with pytest.raises(BundleError, match="not finite"):
        build(Lambda(lambda x: torch.log(x[:, :1])).eval())


@pytest.mark.parametrize(
    "output",
    [
        Binary("y", activation="none"),
        MultiClass("y", classes=("a", "b"), activation="none"),
        MultiLabel("y", classes=("a", "b"), activation="none"),
    ],
    ids=lambda output: output.kind,
)
def test_logits_without_activation_are_refused(build: Build, output: Output) -> None:
    """Where the schema applies no activation, the model must give probabilities."""
    with pytest.raises(BundleError, match="outside of 0 to 1"):
        build(Lambda(lambda x: 5 * x[:, : len(output.columns)]).eval(), outputs=(output,))


def test_an_activation_twice_is_refused(build: Build) -> None:
    """A module that ends with the activation that the schema applies is told so."""
    with pytest.raises(SchemaError, match="applies sigmoid again"):
        build(nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()).eval(), outputs=(Binary("y"),))


def test_golden_rows_that_all_break_a_rule_are_refused(tmp_path: Path) -> None:
    """The first broken rule is named, and not the value that breaks it."""
    schema = Schema(features=(Numeric("a"),), outputs=(Regression("y"),))
    parts = {"name": "m", "version": "1", "fitted": fit(schema), "module": nn.Linear(1, 1).eval()}
    with pytest.raises(BundleError, match="not_a_number in a") as caught:
        build_bundle(tmp_path / "out", **parts, golden=pa.table({"a": ["secret"]}))
    assert "secret" not in str(caught.value)
    with pytest.raises(ColumnMissing, match="a"):
        build_bundle(tmp_path / "out", **parts, golden=pa.table({"b": [1.0]}))


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("Up", "1"), ("a/b", "1"), ("m", ""), ("m", "a:b"), ("m", ".")]
)
def test_names_are_bounded(tmp_path: Path, name: str, version: str) -> None:
    """Name and version become parts of keys and file names, so their letters are few."""
    schema = Schema(features=(Numeric("a"),), outputs=(Regression("y"),))
    golden = pa.table({"a": [1.0]})
    with pytest.raises(BundleError, match=r"bundle (name|version)"):
        build_bundle(
            tmp_path / "out",
            name=name,
            version=version,
            fitted=fit(schema),
            module=nn.Linear(1, 1).eval(),
            golden=golden,
        )


def test_a_bundle_is_never_overwritten(build: Build, tmp_path: Path) -> None:
    """A2: where a bundle lies, another is refused, and the first is as it was."""
    first = build(nn.Linear(3, 1).eval())
    graph = first.read(GRAPH)
    with pytest.raises(BundleConflict, match="another version"):
        build(nn.Linear(3, 1).eval())
    assert first.read(GRAPH) == graph


def test_a_failed_build_leaves_nothing(build: Build, tmp_path: Path) -> None:
    """A directory of that name appears when all of it is there, or not at all."""
    with pytest.raises(BundleError):
        build(Lambda(lambda x: torch.log(x[:, :1])).eval())
    assert list(tmp_path.iterdir()) == []


def test_a_build_makes_the_directories_above(purchase: Bundle, tmp_path: Path) -> None:
    """A training script need not prepare a place."""
    out = tmp_path / "bundles" / "churn" / "1"
    purchase_bundle(out)
    assert load_bundle(out).name == purchase.name


def test_a_place_that_cannot_be_is_told_before_the_work(tmp_path: Path) -> None:
    """A file in the way is named, and no hour of training is lost for it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="file cannot be made"):
        require_free(tmp_path / "file" / "out")


def test_the_module_is_left_as_it_was(build: Build) -> None:
    """Training can go on with the module after a bundle was built from it."""
    module = nn.Linear(3, 1).eval()
    before = module.weight.detach().clone()
    build(module)
    assert module.weight.requires_grad
    assert torch.equal(module.weight, before)
