"""What is learnt from a training table."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import fit as fit_module
from shared.errors import ColumnMissing, ColumnRefused, SchemaError
from shared.fit import Fitted, NumericFit, fit
from shared.schema import Boolean, Categorical, Feature, Numeric, Regression, Schema, Tensor


def schema(*features: Feature) -> Schema:
    return Schema(features=features, outputs=(Regression("y"),))


def learnt(feature: Numeric, values: list[Any]) -> NumericFit:
    return fit(schema(feature), pa.table({feature.name: values})).numeric[feature.name]


def categories(values: pa.Array | pa.ChunkedArray) -> tuple[str, ...] | tuple[int, ...]:
    return fit(schema(Categorical("a")), pa.table({"a": values})).vocabularies["a"]


@pytest.mark.parametrize(
    ("missing", "fill"), [("mean", 4.0), ("median", 2.0), ("indicator", 4.0), ("constant", 0.0), ("reject", 0.0)]
)
def test_missing_values_are_filled_as_the_schema_says(missing: Any, fill: float) -> None:
    """Mean and median are those of the values that are there; a bad value counts for nothing."""
    values = ["1", "2", None, "9", "", "x"]
    assert learnt(Numeric("a", missing=missing, standardise=True), values).fill == fill


def test_a_constant_is_the_float32_that_the_graph_adds() -> None:
    """What is written down is what is computed with."""
    fitted = fit(schema(Numeric("a", missing="constant", fill=0.1)))
    assert fitted.numeric["a"].fill == float(np.float32(0.1))


def test_statistics_are_of_the_values_after_the_steps_before() -> None:
    """Filled, then clipped, then log1p: mean and population deviation are taken of what stands then."""
    numbers = learnt(
        Numeric("a", missing="mean", clip=(0, 5), log1p=True, standardise=True), [1.0, None, 3.0, 14.0, -2.0]
    )
    steps = np.log1p([1, 4, 3, 5, 0])  # the missing one is filled with 4
    assert numbers.fill == 4.0
    assert numbers.mean == float(np.float32(steps.mean()))
    assert numbers.std == float(np.float32(steps.std()))


def test_statistics_are_of_usable_rows() -> None:
    """A row that another feature rejects is not learnt from: the model never sees it."""
    table = pa.table({"a": [1.0, 2.0, 300.0], "b": [True, False, None]})
    assert fit(schema(Numeric("a", standardise=True), Boolean("b")), table).numeric["a"].mean == 1.5


@pytest.mark.parametrize("value", [0.1, 0.0, 1e-30, 3e38])
def test_a_constant_column_is_not_divided_by_dust(value: float) -> None:
    """The deviation of equal values is 0 and counts as 1, whatever rounding would make of it."""
    numbers = learnt(Numeric("a", standardise=True), [value] * 1001)
    assert numbers.mean == float(np.float32(value))
    assert numbers.std == 1.0


def test_a_deviation_below_float32_counts_as_1() -> None:
    """Nothing is divided by a zero that float32 makes."""
    assert learnt(Numeric("a", standardise=True), [0.0, 1e-45]).std == 1.0


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE, min_size=1, max_size=20), st.sampled_from(["mean", "median", "indicator"]))
def test_statistics_are_finite_and_exact_in_json(values: list[float], missing: Any) -> None:
    """Whatever the table holds, the numbers are float32, divide nothing by 0, and JSON brings them back bit by bit."""
    asked = schema(Numeric("a", missing=missing, standardise=True))
    fitted = fit(asked, pa.table({"a": pa.array([*values, None], pa.float32())}))
    numbers = fitted.numeric["a"]
    for number in (numbers.fill, numbers.mean, numbers.std):
        assert math.isfinite(number)
        assert float(np.float32(number)) == number
    assert numbers.std > 0
    assert Fitted.from_json(fitted.to_json()) == fitted
    assert Fitted.from_json(fitted.to_json()).to_json() == fitted.to_json()


@pytest.mark.parametrize(
    ("column", "vocabulary"),
    [
        (pa.array(["b", None, "a", "", "b", "B", "\u00e9", " "]), (" ", "B", "a", "b", "\u00e9")),
        (pa.array(["10", "9"], pa.large_string()), ("10", "9")),
        (pa.array(["b", "a"], pa.string_view()), ("a", "b")),
        (pa.array([10, 9, None, -1], pa.int8()), (-1, 9, 10)),
        (pa.array([2**63 - 1, 0], pa.uint64()), (0, 2**63 - 1)),
        (pa.array(["b", None, "a"]).dictionary_encode(), ("a", "b")),
        (pa.DictionaryArray.from_arrays(pa.array([1, None]), pa.array(["never", "used", None])), ("used",)),
        (pa.chunked_array([pa.array([3, 1]), pa.array([2, 1])]), (1, 2, 3)),
    ],
    ids=lambda each: str(getattr(each, "type", "")),
)
def test_a_vocabulary_is_the_sorted_distinct_values(
    column: pa.Array, vocabulary: tuple[str, ...] | tuple[int, ...]
) -> None:
    """Text by code points, integers by value, so that the order of the rows does not matter."""
    assert categories(column) == vocabulary


def test_a_given_vocabulary_keeps_its_order() -> None:
    """The schema's own vocabulary is not sorted, not extended, and needs no table."""
    assert fit(schema(Categorical("a", vocabulary=("z", "b")))).vocabularies["a"] == ("z", "b")


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([1.0, 2.0]), "the column is double"),
        (pa.array([True]), "the column is bool"),
        (pa.array([b"a"]), "the column is binary"),
        (pa.array([[1]]), "the column is list"),
        (pa.nulls(2), "the column is null"),
        (pa.array([1.5]).dictionary_encode(), "the column is double"),
        (pa.array([None, ""], pa.string()), "has 0 categories"),
        (pa.array([None], pa.int64()), "has 0 categories"),
        (pa.array([2**63], pa.uint64()), "use text"),
    ],
    ids=lambda each: str(getattr(each, "type", "")),
)
def test_a_column_without_categories_is_refused(column: pa.Array, why: str) -> None:
    """Floats, booleans and other types are no categories, and the error names the feature and the type."""
    with pytest.raises(SchemaError, match=f"feature a: .*{why}"):
        categories(column)


def test_a_column_of_ids_is_no_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary has a bound, and beyond it the feature is named."""
    monkeypatch.setattr(fit_module, "MAX_VOCABULARY", 3)
    assert categories(pa.array([1, 2, 3])) == (1, 2, 3)
    with pytest.raises(SchemaError, match="feature a: the training table has 4 categories; 1 to 3"):
        categories(pa.array([1, 2, 3, 4]))


@pytest.mark.parametrize(
    "feature",
    [Numeric("a", standardise=True), Numeric("a", missing="mean"), Numeric("a", missing="indicator"), Categorical("a")],
)
def test_learning_needs_a_table(feature: Feature) -> None:
    """Without a table, the feature that needs one is named."""
    with pytest.raises(SchemaError, match="feature a: it learns from the training table"):
        fit(schema(Boolean("b"), feature))


def test_what_learns_nothing_needs_no_table() -> None:
    """A schema of constants is fitted at once."""
    features = (Numeric("a"), Boolean("b"), Tensor("c", shape=(2,)), Categorical("d", vocabulary=(1, 2)))
    assert fit(schema(*features)) == Fitted(
        schema=schema(*features), numeric={"a": NumericFit()}, vocabularies={"d": (1, 2)}
    )


@pytest.mark.parametrize("missing", ["mean", "median", "indicator"])
def test_a_column_of_missing_values_has_no_mean(missing: Any) -> None:
    """There is nothing to learn a fill from, and the feature is named."""
    with pytest.raises(SchemaError, match="feature a: every value is missing"):
        learnt(Numeric("a", missing=missing), [None, "", None])


@pytest.mark.parametrize("values", [["x", "secret-5711"], []])
def test_a_table_without_a_usable_row_is_refused(values: list[str]) -> None:
    """Bad rows are left out; if none is left, fit says so without repeating a value."""
    with pytest.raises(SchemaError, match="no usable row") as raised:
        learnt(Numeric("a", standardise=True), values)
    assert "secret-5711" not in str(raised.value)


def test_a_bad_row_does_not_stop_fit() -> None:
    """A training row that breaks a rule is left out."""
    assert learnt(Numeric("a", standardise=True), ["1", "x", "3"]).mean == 2.0


def test_a_missing_column_is_named() -> None:
    """The wrong training table is refused by the name of the column that it lacks."""
    for feature in (Numeric("a", standardise=True), Categorical("a")):
        with pytest.raises(ColumnMissing, match="'a'"):
            fit(schema(feature), pa.table({"b": [1]}))


def test_a_column_that_is_there_twice_is_refused() -> None:
    """Nothing is guessed about which of two columns is learnt from."""
    table = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["a", "a"])
    with pytest.raises(ColumnRefused, match="2 columns named 'a'"):
        fit(schema(Categorical("a")), table)


def test_a_fill_that_float32_puts_at_minus_1_has_no_logarithm() -> None:
    """log1p of a fill must be finite in the graph's own numbers."""
    with pytest.raises(SchemaError, match="feature a: log1p needs a fill above -1"):
        fit(schema(Numeric("a", missing="constant", fill=-0.99999999999, log1p=True)))


def test_widths_and_cardinalities_are_what_a_module_needs() -> None:
    """A module's layers are sized by the fitted schema: buckets, indicators and one-hot columns included."""
    fitted = fit(
        schema(
            Numeric("a", missing="indicator"),
            Categorical("b", encoding="onehot", unseen="reject"),
            Categorical("c"),
            Boolean("d"),
            Boolean("e", missing="indicator"),
            Categorical("f", vocabulary=(1,), unseen="reject", missing="reject"),
            Tensor("g", shape=(2,), missing="zeros"),
        ),
        pa.table({"a": [1.0], "b": ["x"], "c": ["y"], "d": [True], "e": [True], "f": [1], "g": [[1.0, 2.0]]}),
    )
    assert fitted.dense_width == 2 + 2 + 1 + 2
    assert fitted.cardinalities == (3, 1)


SCHEMA = schema(Numeric("a"), Categorical("b", vocabulary=("x", "y")))


@pytest.mark.parametrize(
    ("numeric", "vocabularies", "why"),
    [
        ({}, {"b": ("x", "y")}, "feature a: its statistics"),
        ({"a": NumericFit(), "z": NumericFit()}, {"b": ("x", "y")}, "feature z: its statistics"),
        ({"a": NumericFit()}, {}, "feature b: its vocabulary"),
        ({"a": NumericFit()}, {"b": ("y", "x")}, "feature b: the vocabulary is not the schema's"),
        ({"a": NumericFit(std=0.0)}, {"b": ("x", "y")}, "feature a: statistics must be finite"),
    ],
)
def test_statistics_and_schema_belong_together(numeric: Any, vocabularies: Any, why: str) -> None:
    """What was learnt for another schema is refused, from a file too."""
    with pytest.raises(SchemaError, match=why):
        Fitted(schema=SCHEMA, numeric=numeric, vocabularies=vocabularies)


@pytest.mark.parametrize("text", [b"{}", b"[", b'{"schema":1}'])
def test_a_broken_json_is_a_schema_error(text: bytes) -> None:
    """A bundle's fitted preprocessing that cannot be read is named as such."""
    with pytest.raises(SchemaError, match="fitted preprocessing"):
        Fitted.from_json(text)
