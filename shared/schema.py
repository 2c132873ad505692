"""The schema: named, typed features with their rules, and the outputs with their class mapping.

    schema = Schema(
        entity="customer_id",
        features=[Numeric("tenure", standardise=True), Categorical("contract"), Boolean("partner")],
        outputs=[Binary("churn", threshold=0.5)],
    )

A schema is a declaration: it holds no data. ``shared.fit`` learns the statistics and vocabularies it asks for.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from typing import Annotated, Literal, Self

import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from shared.errors import SchemaError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_. -]{0,99}")

_FROZEN = ConfigDict(extra="forbid", strict=False, allow_inf_nan=False)


@dataclass(frozen=True, config=_FROZEN)
class Numeric:
    """A number, float32 in the graph.

    In the graph, in this order: missing values are filled (``mean``, ``median`` of the training table, ``constant``),
    ``clip`` bounds, ``log1p`` takes ln(1 + x), ``standardise`` subtracts the mean and divides by the standard deviation
    of the training table's values as they stand after the steps before. ``indicator`` fills with the mean and adds a
    column that is 1 where the value was missing. ``reject`` rejects the row.
    """

    name: str
    missing: Literal["reject", "mean", "median", "constant", "indicator"] = field(default="reject", kw_only=True)
    fill: float = field(default=0.0, kw_only=True)
    clip: tuple[float, float] | None = field(default=None, kw_only=True)
    log1p: bool = field(default=False, kw_only=True)
    standardise: bool = field(default=False, kw_only=True)
    kind: Literal["numeric"] = field(default="numeric", kw_only=True)

    def __post_init__(self) -> None:
        if self.fill and self.missing != "constant":
            raise SchemaError(f"feature {self.name}: fill is only used with missing='constant'")
        if self.clip is not None and self.clip[0] >= self.clip[1]:
            raise SchemaError(f"feature {self.name}: clip needs a lower bound below its upper bound")
        if self.log1p and self.clip is not None and self.clip[0] <= -1:
            raise SchemaError(f"feature {self.name}: log1p needs clip's lower bound above -1")
        if self.log1p and self.missing == "constant" and self.fill <= -1:
            raise SchemaError(f"feature {self.name}: log1p needs a fill above -1")


@dataclass(frozen=True, config=_FROZEN)
class Categorical:
    """A category: text or an integer out of an ordered vocabulary.

    ``vocabulary``: given in order, or learnt from the training table and sorted. ``unseen`` and ``missing``: a bucket
    of their own behind the vocabulary, or the row is rejected. ``encoding``: ``index`` gives the model a code for an
    embedding (its column of the ``codes`` tensor), ``onehot`` gives one dense column per code.
    """

    name: str
    vocabulary: tuple[str, ...] | tuple[int, ...] | None = field(default=None, kw_only=True)
    unseen: Literal["own", "reject"] = field(default="own", kw_only=True)
    missing: Literal["own", "reject"] = field(default="own", kw_only=True)
    encoding: Literal["index", "onehot"] = field(default="index", kw_only=True)
    kind: Literal["categorical"] = field(default="categorical", kw_only=True)

    def __post_init__(self) -> None:
        if self.vocabulary is not None:
            if not self.vocabulary:
                raise SchemaError(f"feature {self.name}: the vocabulary is empty")
            _refuse_twice("category", self.name, self.vocabulary)
            if any(isinstance(word, int) and not -(2**63) <= word < 2**63 for word in self.vocabulary):
                raise SchemaError(f"feature {self.name}: an integer category needs more than 64 bits: use text")


@dataclass(frozen=True, config=_FROZEN)
class Boolean:
    """True or false: one dense column of 1 and 0. A missing value is ``false``, ``true``, or rejects the row;
    ``indicator`` takes it as false and adds a column that is 1 where the value was missing."""

    name: str
    missing: Literal["reject", "false", "true", "indicator"] = field(default="reject", kw_only=True)
    kind: Literal["boolean"] = field(default="boolean", kw_only=True)


@dataclass(frozen=True, config=_FROZEN)
class Tensor:
    """A tensor of fixed shape: an embedding, an image, token ids, their mask. It reaches the model as it is.

    ``shape`` is that of one row. ``minimum`` and ``maximum`` (inclusive) bound each element: token ids outside of an
    embedding's table are rejected here and never raise in the graph. Missing: ``zeros``, or the row is rejected.
    """

    name: str
    shape: tuple[Annotated[int, Field(ge=1)], ...] = field(kw_only=True)
    dtype: Literal["float32", "int64", "bool"] = field(default="float32", kw_only=True)
    missing: Literal["reject", "zeros"] = field(default="reject", kw_only=True)
    minimum: float | None = field(default=None, kw_only=True)
    maximum: float | None = field(default=None, kw_only=True)
    kind: Literal["tensor"] = field(default="tensor", kw_only=True)

    def __post_init__(self) -> None:
        if not self.shape:
            raise SchemaError(f"feature {self.name}: a tensor of no dimension is a Numeric")
        if len(self.shape) > MAX_TENSOR_DIMENSIONS:
            raise SchemaError(
                f"feature {self.name}: {len(self.shape)} dimensions; the limit is {MAX_TENSOR_DIMENSIONS}"
            )
        if self.size > MAX_TENSOR_ELEMENTS:
            raise SchemaError(f"feature {self.name}: {self.size} elements; the limit is {MAX_TENSOR_ELEMENTS}")

    @property
    def size(self) -> int:
        """The number of elements of one row."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size


MAX_TENSOR_ELEMENTS = 4 * 1024 * 1024
"""Elements of one row of one tensor: 16 MiB of float32. Bounds what one request can make the service allocate."""

MAX_TENSOR_DIMENSIONS = 32
"""Of one row of one tensor: the arrays below take 64, and the batch is one of them."""


@dataclass(frozen=True, config=_FROZEN)
class Binary:
    """One probability, of the second of two classes. The prediction is given where a ``threshold`` is: true or false,
    or with ``classes`` the class's name; a score at or above the threshold is the second class."""

    name: str
    classes: tuple[str, str] | None = field(default=None, kw_only=True)
    threshold: float | None = field(default=None, kw_only=True)
    activation: Literal["sigmoid", "none"] = field(default="sigmoid", kw_only=True)
    kind: Literal["binary"] = field(default="binary", kw_only=True)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of this output's scores, in the graph's order."""
        return (self.name,)


@dataclass(frozen=True, config=_FROZEN)
class MultiClass:
    """One probability for each class, in order; they add up to 1. The prediction is the class of the greatest (the
    first of equals). Its scores are named ``{name}.{class}``."""

    name: str
    classes: tuple[str, ...] = field(kw_only=True)
    activation: Literal["softmax", "none"] = field(default="softmax", kw_only=True)
    kind: Literal["multiclass"] = field(default="multiclass", kw_only=True)

    def __post_init__(self) -> None:
        _require_classes(self.name, self.classes, at_least=2)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of this output's scores, in the graph's order."""
        return tuple(f"{self.name}.{label}" for label in self.classes)


@dataclass(frozen=True, config=_FROZEN)
class MultiLabel:
    """One probability for each label, independent of one another. With a ``threshold`` the prediction is the list of
    labels at or above it. Its scores are named ``{name}.{label}``."""

    name: str
    classes: tuple[str, ...] = field(kw_only=True)
    threshold: float | None = field(default=None, kw_only=True)
    activation: Literal["sigmoid", "none"] = field(default="sigmoid", kw_only=True)
    kind: Literal["multilabel"] = field(default="multilabel", kw_only=True)

    def __post_init__(self) -> None:
        _require_classes(self.name, self.classes, at_least=1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of this output's scores, in the graph's order."""
        return tuple(f"{self.name}.{label}" for label in self.classes)


@dataclass(frozen=True, config=_FROZEN)
class Regression:
    """One number, as the model gives it. There is no prediction beside the score."""

    name: str
    kind: Literal["regression"] = field(default="regression", kw_only=True)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of this output's scores, in the graph's order."""
        return (self.name,)


Feature = Annotated[Numeric | Categorical | Boolean | Tensor, Field(discriminator="kind")]
Output = Annotated[Binary | MultiClass | MultiLabel | Regression, Field(discriminator="kind")]


@dataclass(frozen=True, config=_FROZEN, kw_only=True)
class Schema:
    """The contract of a model: ``entity`` names the id column of tables, ``features`` and ``outputs`` are in order.

    The order is this one everywhere: never the table's, never the request's.
    """

    entity: str = "entity_id"
    features: tuple[Feature, ...]
    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        if not self.features or not self.outputs:
            raise SchemaError("a schema needs at least one feature and one output")
        names = [self.entity, *(feature.name for feature in self.features)]
        for name in [*names, *(output.name for output in self.outputs)]:
            if not NAME.fullmatch(name):
                raise SchemaError(f"name {name[:100]!r}: up to 100 letters, digits, '_', '.', '-', ' '; a letter first")
        _refuse_twice("feature", "schema", names)
        _refuse_twice("score", "schema", self.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all scores, in the order of the graph's output columns."""
        return tuple(column for output in self.outputs for column in output.columns)

    @property
    def dense_inputs(self) -> "tuple[Numeric | Boolean, ...]":
        """The features that share the graph's ``numeric`` input: float32 [rows, len], NaN where missing."""
        return tuple(feature for feature in self.features if isinstance(feature, Numeric | Boolean))

    @property
    def categoricals(self) -> tuple[Categorical, ...]:
        """The features that share the graph's ``codes`` input: int64 [rows, len]."""
        return tuple(feature for feature in self.features if isinstance(feature, Categorical))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The features that are graph inputs of their own, behind ``numeric`` and ``codes``."""
        return tuple(feature for feature in self.features if isinstance(feature, Tensor))

    @property
    def fingerprint(self) -> str:
        """sha256 of the canonical JSON: equal exactly when two schemas say the same."""
        return hashlib.sha256(self.to_json()).hexdigest()

    def to_json(self) -> bytes:
        """The canonical JSON: keys sorted, no blanks."""
        return orjson.dumps(_SCHEMA.dump_python(self, mode="json"), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Reads what ``to_json`` wrote; SchemaError names the first thing that is wrong."""
        try:
            return _SCHEMA.validate_json(text)  # type: ignore[return-value]
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(str(step) for step in first["loc"])
            raise SchemaError(f"schema: {place}: {first['msg']}") from None


_SCHEMA: TypeAdapter[Schema] = TypeAdapter(Schema)


def _refuse_twice(what: str, where: str, names: Iterable[object]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SchemaError(f"{where}: {what} {str(twice[0])[:100]!r} is there twice")


def _require_classes(name: str, classes: tuple[str, ...], *, at_least: int) -> None:
    if len(classes) < at_least:
        raise SchemaError(f"output {name}: needs at least {at_least} classes")
    _refuse_twice("class", f"output {name}", classes)
