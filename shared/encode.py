"""From rows to tensors: one encoder with two front doors, Arrow columns for the batch and mappings for requests.

Both doors decode by the rules of ``shared.rules`` and ``shared.tensors`` and give the same bits. A row that breaks a
rule is left out and reported; its neighbours are not touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

import numpy as np
import pyarrow as pa

from shared.codes import Code, Rejection
from shared.columns import decode_column
from shared.errors import ColumnMissing, ColumnRefused
from shared.fitted import Fitted
from shared.rules import ScalarRule, boolean_rule, categorical_rule, numeric_rule
from shared.schema import Boolean, Categorical, Numeric, Tensor
from shared.tensors import DTYPES, Array, TensorRule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoded:
    """Rows as the graph takes them, and the rows that cannot be.

    ``numeric`` float32 [n, dense inputs], NaN where missing; ``codes`` int64 [n, categoricals]; ``tensors`` [n, *shape]
    each; ``rows`` int64 [n], ascending: where each row stood in what was given; ``rejections`` by row, each with the
    first field in the schema's order that broke a rule.
    """

    numeric: Array
    codes: Array
    tensors: tuple[Array, ...] = ()
    rows: Array
    rejections: tuple[Rejection, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def inputs(self) -> tuple[Array, ...]:
        """The graph's inputs in its order: ``numeric`` and ``codes`` if the schema has such features, then tensors."""
        return tuple(part for part in (self.numeric, self.codes) if part.shape[1]) + self.tensors

    def take(self, positions: Array) -> "Encoded":
        """The encoded rows at these positions (0 is the first encoded row), without rejections."""
        return Encoded(
            numeric=self.numeric[positions],
            codes=self.codes[positions],
            tensors=tuple(tensor[positions] for tensor in self.tensors),
            rows=self.rows[positions],
        )

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> "Encoded":
        """The encoded rows of all parts in order, numbered from 0, without rejections. Needs at least one part."""
        return Encoded(
            numeric=np.concatenate([part.numeric for part in parts]),
            codes=np.concatenate([part.codes for part in parts]),
            tensors=tuple(np.concatenate(tensors) for tensors in zip(*(part.tensors for part in parts), strict=True)),
            rows=np.arange(sum(map(len, parts)), dtype=np.int64),
        )


@dataclass(frozen=True, slots=True)
class _Field:
    """One feature's way in: its rule, the part of the input that it fills (0 numeric, 1 codes, 2.. tensors), where."""

    name: str
    rule: ScalarRule | TensorRule
    part: int
    place: Any


class Encoder:
    """Decodes rows for one fitted schema. Compiled once; holds no state between calls and may be shared by threads."""

    def __init__(self, fitted: Fitted) -> None:
        self.schema = fitted.schema
        self._fields = _compiled(fitted)
        self._plan = tuple((field.name, field.rule.decode, field.part, field.place) for field in self._fields)
        self._parts: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...] = (
            ((len(self.schema.dense_inputs),), np.dtype(np.float32)),
            ((len(self.schema.categoricals),), np.dtype(np.int64)),
            *((tensor.shape, DTYPES[tensor.dtype]) for tensor in self.schema.tensors),
        )

    def columns(self, table: pa.Table | pa.RecordBatch) -> Encoded:
        """Encodes a table. ColumnMissing names the first feature that it lacks; other columns are not looked at."""
        columns = [find_column(table, field.name) for field in self._fields]
        parts = self._allocated(table.num_rows)
        codes = np.zeros(table.num_rows, np.uint8)
        blamed = np.zeros(table.num_rows, np.int64)
        for position, (field, column) in enumerate(zip(self._fields, columns, strict=True)):
            values, broken = decode_column(field.rule, column)
            parts[field.part][:, field.place] = values
            first = (broken != 0) & (codes == 0)
            codes[first] = broken[first]
            blamed[first] = position
        rejections = tuple(
            Rejection(row=int(row), code=Code(int(codes[row])), field=self._fields[blamed[row]].name)
            for row in np.flatnonzero(codes)
        )
        rows = np.flatnonzero(codes == 0)
        if rejections:
            parts = [part[rows] for part in parts]
        return _encoded(parts, rows, rejections)

    def rows(self, rows: Sequence[Mapping[str, object]]) -> Encoded:
        """Encodes mappings from feature names to values. An absent name is a missing value; others are not read."""
        parts = self._allocated(len(rows))
        kept: list[int] = []
        rejections: list[Rejection] = []
        for position, row in enumerate(rows):
            target = len(kept)
            for name, decode, part, place in self._plan:
                value = decode(row.get(name))
                if type(value) is Code:
                    rejections.append(Rejection(row=position, code=value, field=name))
                    break
                parts[part][target, place] = value
            else:
                kept.append(position)
        if rejections:
            parts = [part[: len(kept)] for part in parts]
        return _encoded(parts, np.array(kept, np.int64), tuple(rejections))

    def _allocated(self, rows: int) -> list[Array]:
        return [np.empty((rows, *shape), dtype) for shape, dtype in self._parts]


def _encoded(parts: Sequence[Array], rows: Array, rejections: tuple[Rejection, ...]) -> Encoded:
    numeric, codes, *tensors = parts
    return Encoded(numeric=numeric, codes=codes, tensors=tuple(tensors), rows=rows, rejections=rejections)


def _compiled(fitted: Fitted) -> tuple[_Field, ...]:
    fields: list[_Field] = []
    dense, codes, tensors = count(), count(), count(2)
    for feature in fitted.schema.features:
        match feature:
            case Numeric():
                fields.append(_Field(feature.name, numeric_rule(feature), 0, next(dense)))
            case Boolean():
                fields.append(_Field(feature.name, boolean_rule(feature), 0, next(dense)))
            case Categorical():
                rule = categorical_rule(feature, fitted.vocabularies[feature.name])
                fields.append(_Field(feature.name, rule, 1, next(codes)))
            case Tensor():
                fields.append(_Field(feature.name, TensorRule.of(feature), next(tensors), ...))
    return tuple(fields)


def find_column(table: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray | pa.Array:
    """The one column of that name. Raises: ColumnMissing, ColumnRefused where there are several."""
    indices = table.schema.get_all_field_indices(name)
    if not indices:
        raise ColumnMissing(f"the table has no column {name!r}, which the schema's feature needs: add or rename it")
    if len(indices) > 1:
        raise ColumnRefused(f"the table has {len(indices)} columns named {name!r}: keep the one that is the feature")
    return table.column(indices[0])
