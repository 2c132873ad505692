"""Learning from the training table what the schema asks for: statistics of numerics, vocabularies of categoricals.

The table goes through the encoder that serves, so that what is learnt from is what will be seen. Rows that break a
rule are left out, as they will be.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shared.columns import python_values
from shared.encode import Encoder, find_column
from shared.errors import SchemaError
from shared.fitted import Fitted, NumericFit, Vocabulary
from shared.rules import nearest_float32
from shared.schema import Categorical, Numeric, Schema
from shared.tensors import Array

__all__ = ["MAX_VOCABULARY", "Fitted", "NumericFit", "fit"]

MAX_VOCABULARY = 1_000_000
"""The most categories that are learnt for one feature: more are ids, not categories."""

_INT64_MAX = 2**63 - 1


def fit(schema: Schema, table: pa.Table | None = None) -> Fitted:
    """Fits a schema on a training table, which is only needed where something is to be learnt.

    Raises: SchemaError names the feature that cannot be learnt, and why; ColumnMissing.
    """
    wanting = next((each for each in schema.features if _is_learnt(each)), None)
    if wanting is not None and table is None:
        raise SchemaError(f"feature {wanting.name}: it learns from the training table, so fit needs one")
    vocabularies = {each.name: _vocabulary(each, table) for each in schema.categoricals}
    numerics = [each for each in schema.features if isinstance(each, Numeric)]
    neutral = Fitted(
        schema=schema,
        numeric={each.name: NumericFit(fill=_constant(each)) for each in numerics},
        vocabularies=vocabularies,
    )
    if wanting is None or table is None:
        return neutral
    encoded = Encoder(neutral).columns(table)
    if not len(encoded):
        first = encoded.rejections[0] if encoded.rejections else None
        why = f"; the first breaks {first.code.text} of {first.field}" if first else ""
        raise SchemaError(f"the training table has no usable row among {table.num_rows}{why}")
    learnt = {
        each.name: _numbers(each, encoded.numeric[:, place])
        for place, each in enumerate(schema.dense_inputs)
        if isinstance(each, Numeric)
    }
    return Fitted(schema=schema, numeric=learnt, vocabularies=vocabularies)


def _is_learnt(feature: object) -> bool:
    match feature:
        case Numeric():
            return feature.standardise or feature.missing in {"mean", "median", "indicator"}
        case Categorical():
            return feature.vocabulary is None
    return False


def _constant(feature: Numeric) -> float:
    fill = nearest_float32(feature.fill)
    if feature.missing == "constant" and feature.log1p and _clipped(feature, np.array([fill]))[0] <= -1:
        raise SchemaError(f"feature {feature.name}: log1p needs a fill above -1 in float32")
    return fill


def _numbers(feature: Numeric, values: Array) -> NumericFit:
    """Values float32 [rows], NaN where missing."""
    missing = np.isnan(values)
    present = values[~missing].astype(np.float64)
    fill = _fill(feature, present)
    if not feature.standardise:
        return NumericFit(fill=fill)
    steps = _clipped(feature, np.where(missing, fill, values.astype(np.float64)))
    mean, std = _moments(np.log1p(steps) if feature.log1p else steps)
    return NumericFit(fill=fill, mean=mean, std=std)


def _fill(feature: Numeric, present: Array) -> float:
    if feature.missing in {"reject", "constant"}:
        return _constant(feature)
    if not len(present):
        raise SchemaError(f"feature {feature.name}: every value is missing, so there is no {feature.missing} to learn")
    return nearest_float32(float(np.median(present) if feature.missing == "median" else present.mean()))


def _clipped(feature: Numeric, values: Array) -> Array:
    if feature.clip is None:
        return values
    lower, upper = map(nearest_float32, feature.clip)
    return np.clip(values, lower, upper)


def _moments(values: Array) -> tuple[float, float]:
    """Mean and population standard deviation; a deviation of 0 counts as 1."""
    if values.min() == values.max():  # rounding would make the deviation of equal values a tiny number
        return nearest_float32(float(values[0])), 1.0
    return nearest_float32(float(values.mean())), nearest_float32(float(values.std())) or 1.0


def _vocabulary(feature: Categorical, table: pa.Table | None) -> Vocabulary:
    if feature.vocabulary is not None or table is None:
        return feature.vocabulary or ()
    column = find_column(table, feature.name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not is_text and not pa.types.is_integer(kind):
        raise SchemaError(f"feature {feature.name}: categories are text or integers, and the column is {kind}: cast it")
    words = (word for chunk in column.chunks for word in _distinct(chunk))
    distinct: set[Any] = {word for word in words if isinstance(word, str | int) and word != ""}
    if not 0 < len(distinct) <= MAX_VOCABULARY:
        raise SchemaError(
            f"feature {feature.name}: the training table has {len(distinct)} categories; "
            f"1 to {MAX_VOCABULARY} can be learnt"
        )
    if not is_text and max(distinct) > _INT64_MAX:
        raise SchemaError(f"feature {feature.name}: integers above 2**63 - 1 cannot be categories: use text")
    return tuple(sorted(distinct))


def _distinct(chunk: pa.Array) -> list[object]:
    if isinstance(chunk, pa.DictionaryArray):
        return python_values(pc.take(chunk.dictionary, chunk.indices.drop_null().unique()))
    return python_values(chunk.unique())
