"""What was learnt from the training table: all that stands between a schema and its tensors.

``shared.fit`` makes it, a bundle carries it, the encoder and the graph are built from it.
"""

import math
from dataclasses import field
from typing import Any, Self

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from shared.errors import SchemaError
from shared.rules import cardinality
from shared.schema import Boolean, Categorical, Feature, Numeric, Schema

_FROZEN = ConfigDict(extra="forbid", allow_inf_nan=False)

Vocabulary = tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True, config=_FROZEN, kw_only=True)
class NumericFit:
    """The numbers of one ``Numeric``, each exactly a float32: what is filled in, and how it is standardised."""

    fill: float = 0.0
    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True, config=_FROZEN, kw_only=True)
class Fitted:
    """A schema with the statistics of its numerics and the vocabularies of its categoricals, by feature name."""

    schema: Schema
    numeric: dict[str, NumericFit] = field(default_factory=dict)
    vocabularies: dict[str, Vocabulary] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numerics = {feature.name for feature in self.schema.features if isinstance(feature, Numeric)}
        categoricals = {feature.name for feature in self.schema.categoricals}
        for what, there, wanted in (
            ("statistics", self.numeric.keys(), numerics),
            ("vocabulary", self.vocabularies.keys(), categoricals),
        ):
            if there != wanted:
                raise SchemaError(f"feature {min(there ^ wanted)}: its {what} and the schema do not match")
        for name, numbers in self.numeric.items():
            if not (numbers.std > 0 and math.isfinite(numbers.fill) and math.isfinite(numbers.mean)):
                raise SchemaError(f"feature {name}: statistics must be finite, and std above 0")
        for feature in self.schema.categoricals:
            if feature.vocabulary not in {None, self.vocabularies[feature.name]}:
                raise SchemaError(f"feature {feature.name}: the vocabulary is not the schema's")

    @property
    def dense_width(self) -> int:
        """The columns of the model's dense tensor."""
        return sum(self.width(feature) for feature in self.schema.features)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """The table sizes that embeddings of the index-encoded categoricals need, in order, buckets included."""
        return tuple(self.cardinality(feature) for feature in self.schema.categoricals if feature.encoding == "index")

    def cardinality(self, feature: Categorical) -> int:
        """The number of codes of one categorical, buckets included."""
        return cardinality(feature, self.vocabularies[feature.name])

    def width(self, feature: Feature) -> int:
        """The dense columns of one feature."""
        if isinstance(feature, Numeric | Boolean):
            return 2 if feature.missing == "indicator" else 1
        if isinstance(feature, Categorical) and feature.encoding == "onehot":
            return self.cardinality(feature)
        return 0

    def to_json(self) -> bytes:
        """The canonical JSON: keys sorted, no blanks, every number exact."""
        return orjson.dumps(self.to_dict(), option=orjson.OPT_SORT_KEYS)

    def to_dict(self) -> dict[str, Any]:
        """The JSON's content, for a file that holds more than this."""
        return _FITTED.dump_python(self, mode="json")  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Reads what ``to_json`` wrote; SchemaError names the first thing that is wrong."""
        try:
            return _FITTED.validate_json(text)  # type: ignore[return-value]
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(str(step) for step in first["loc"])
            raise SchemaError(f"fitted preprocessing: {place}: {first['msg']}") from None


_FITTED: TypeAdapter[Fitted] = TypeAdapter(Fitted)
