"""The declaration of a model."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.errors import SchemaError
from shared.schema import (
    MAX_TENSOR_ELEMENTS,
    Binary,
    Boolean,
    Categorical,
    MultiClass,
    MultiLabel,
    Numeric,
    Regression,
    Schema,
    Tensor,
)

EVERYTHING = Schema(
    entity="customer_id",
    features=(
        Numeric("tenure", missing="indicator", clip=(0, 72), log1p=True, standardise=True),
        Categorical("contract", vocabulary=("month", "year"), encoding="onehot"),
        Tensor("image", shape=(3, 2, 2), missing="zeros", minimum=0, maximum=1),
        Boolean("partner", missing="indicator"),
        Categorical("region", vocabulary=(1, 2, 3), unseen="reject", missing="reject"),
        Numeric("charges", missing="constant", fill=1.5),
        Tensor("tokens", shape=(8,), dtype="int64"),
        Categorical("free"),
    ),
    outputs=(
        Binary("churn", threshold=0.5, classes=("stay", "leave")),
        MultiClass("segment", classes=("a", "b", "c")),
        MultiLabel("wants", classes=("x", "y"), threshold=0.3),
        Regression("spend"),
    ),
)


def test_json_brings_back_the_schema() -> None:
    """A schema read back from its JSON is equal, kinds and defaults included."""
    assert Schema.from_json(EVERYTHING.to_json()) == EVERYTHING


def test_json_is_canonical() -> None:
    """Writing, reading and writing again gives the same bytes, and so the same fingerprint."""
    again = Schema.from_json(EVERYTHING.to_json())
    assert again.to_json() == EVERYTHING.to_json()
    assert again.fingerprint == EVERYTHING.fingerprint
    assert re.fullmatch("[0-9a-f]{64}", EVERYTHING.fingerprint)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1))
def test_numbers_survive_json_exactly(number: float) -> None:
    """A number of the schema is the same float64 after JSON."""
    schema = Schema(features=(Numeric("a", missing="constant", fill=number),), outputs=(Regression("r"),))
    assert Schema.from_json(schema.to_json()) == schema


@given(st.lists(st.text(max_size=5), min_size=1, unique=True) | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_vocabularies_survive_json_exactly(words: list[str] | list[int]) -> None:
    """Text that spells a number stays text, and integers stay integers."""
    vocabulary = tuple(dict.fromkeys(words))
    schema = Schema(features=(Categorical("a", vocabulary=vocabulary),), outputs=(Regression("r"),))
    back = Schema.from_json(schema.to_json()).categoricals[0].vocabulary
    assert back == vocabulary
    assert [type(word) for word in back or ()] == [type(word) for word in vocabulary]


def test_the_order_is_the_schemas() -> None:
    """Each kind of input lists its features as the schema does."""
    assert [feature.name for feature in EVERYTHING.dense_inputs] == ["tenure", "partner", "charges"]
    assert [feature.name for feature in EVERYTHING.categoricals] == ["contract", "region", "free"]
    assert [feature.name for feature in EVERYTHING.tensors] == ["image", "tokens"]


def test_every_score_has_a_name() -> None:
    """The columns of all outputs are named, in the graph's order."""
    assert EVERYTHING.columns == (
        *("churn", "segment.a", "segment.b", "segment.c"),
        *("wants.x", "wants.y", "spend"),
    )


def test_another_order_is_another_schema() -> None:
    """The fingerprint tells schemas apart that differ in their order alone."""
    turned = Schema(entity="customer_id", features=EVERYTHING.features[::-1], outputs=EVERYTHING.outputs)
    assert turned.fingerprint != EVERYTHING.fingerprint


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("fill is only used", lambda: Numeric("a", fill=1.0)),
    ("lower bound below", lambda: Numeric("a", clip=(1, 1))),
    ("lower bound above -1", lambda: Numeric("a", clip=(-1, 1), log1p=True)),
    ("fill above -1", lambda: Numeric("a", missing="constant", fill=-1, log1p=True)),
    ("vocabulary is empty", lambda: Categorical("a", vocabulary=())),
    ("is there twice", lambda: Categorical("a", vocabulary=("x", "x"))),
    ("more than 64 bits", lambda: Categorical("a", vocabulary=(2**63,))),
    ("of no dimension", lambda: Tensor("a", shape=())),
    ("the limit is", lambda: Tensor("a", shape=(MAX_TENSOR_ELEMENTS, 2))),
    ("at least 2 classes", lambda: MultiClass("a", classes=("x",))),
    ("at least 1 classes", lambda: MultiLabel("a", classes=())),
    ("is there twice", lambda: MultiClass("a", classes=("x", "x"))),
    ("at least one feature", lambda: Schema(features=(), outputs=(Regression("r"),))),
    ("at least one feature", lambda: Schema(features=(Numeric("a"),), outputs=())),
    ("'a' is there twice", lambda: Schema(features=(Numeric("a"), Boolean("a")), outputs=(Regression("r"),))),
    ("'a' is there twice", lambda: Schema(entity="a", features=(Numeric("a"),), outputs=(Regression("r"),))),
    ("'r' is there twice", lambda: Schema(features=(Numeric("a"),), outputs=(Regression("r"), Binary("r")))),
    ("a letter first", lambda: Schema(features=(Numeric("1a"),), outputs=(Regression("r"),))),
    ("a letter first", lambda: Schema(features=(Numeric("a\n"),), outputs=(Regression("r"),))),
    ("a letter first", lambda: Schema(features=(Numeric("a" * 101),), outputs=(Regression("r"),))),
]


@pytest.mark.parametrize(("rule", "declare"), REFUSED)
def test_a_contradiction_is_refused(rule: str, declare: Callable[[], object]) -> None:
    """A declaration that cannot be is refused where it is written, and the error says the rule."""
    with pytest.raises(SchemaError, match=re.escape(rule)):
        declare()


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Numeric("a", missing="guess"),  # type: ignore[arg-type]
        lambda: Numeric("a", clip=(0, float("inf"))),
        lambda: Categorical("a", vocabulary=("x", 1)),  # type: ignore[arg-type]
        lambda: Tensor("a", shape=(0,)),
        lambda: Tensor("a", shape=(2,), dtype="float64"),  # type: ignore[arg-type]
        lambda: Binary("a", activation="softmax"),  # type: ignore[arg-type]
    ],
)
def test_an_impossible_value_is_refused(declare: Callable[[], object]) -> None:
    """An option outside of its choices never becomes part of a schema."""
    with pytest.raises(ValidationError):
        declare()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"{}", "features"),
        (b"[", "schema"),
        (b'{"features":[{"kind":"numeric"}],"outputs":[]}', "features.0.numeric.name"),
        (b'{"features":[{"kind":"spline","name":"a"}],"outputs":[]}', "features.0"),
        (b'{"features":[],"outputs":[]}', "at least one feature"),
    ],
)
def test_a_broken_json_names_the_place(text: bytes, place: str) -> None:
    """What is wrong in a file is named by its place in it."""
    with pytest.raises(SchemaError, match=re.escape(place)):
        Schema.from_json(text)


def test_a_broken_json_shows_no_value() -> None:
    """The error never repeats what the file holds."""
    with pytest.raises(SchemaError) as raised:
        Schema.from_json(b'{"features":[{"kind":"numeric","name":["taint-5711"]}],"outputs":[]}')
    assert "taint-5711" not in str(raised.value)


def test_a_declaration_cannot_change() -> None:
    """A schema is a value: nobody changes it after it was given away."""
    with pytest.raises((AttributeError, TypeError, ValidationError)):
        EVERYTHING.entity = "other"  # type: ignore[misc]
