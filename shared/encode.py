"""From rows to tensors: one encoder with two front doors, Arrow columns for the batch and mappings for requests.

Both doors decode by the rules of ``shared.rules`` and ``shared.tensors`` and give the same bits. A row that breaks a
rule is left out and reported; its neighbours are not touched.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

import numpy as np
import pyarrow as pa

from shared.codes import Code, Rejection
from shared.columns import decode_column
from shared.errors import ColumnMissing, ColumnRefused
from shared.fitted import Fitted
from shared.packing import RowPacking
from shared.row_reader import Line, row_reader
from shared.rules import ScalarRule, boolean_rule, categorical_rule, numeric_rule
from shared.schema import Boolean, Categorical, Numeric, Tensor
from shared.tensors import DTYPES, Array, TensorRule

_FIRST = np.zeros(1, np.int64)
_FIRST.flags.writeable = False

Plan = tuple[tuple[str, Callable[[Any], Any]], ...]
"""Features by name, and what to do with their values."""


@dataclass(
    slots=True, kw_only=True, eq=False
)  # not frozen, which would cost two microseconds for each row scored alone
class Encoded:
    """Rows as the graph takes them, and the rows that cannot be. Not to be changed: threads may share it.

    ``numeric`` float32 [n, dense inputs], NaN where missing; ``codes`` int64 [n, categoricals]; ``tensors`` [n, *shape]
    each; ``rows`` int64 [n], ascending: where each row stood in what was given; ``rejections`` by row, each with the
    first field in the schema's order that broke a rule. ``whole``, where it is not empty, holds the same inputs as
    passes take them: filled up to whole tiles with copies of the last row, each aligned as torch's memory is.
    """

    numeric: Array
    codes: Array
    tensors: tuple[Array, ...] = ()
    rows: Array
    rejections: tuple[Rejection, ...] = ()
    whole: tuple[Array, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def inputs(self) -> tuple[Array, ...]:
        """The graph's inputs in its order: ``numeric`` and ``codes`` if the schema has such features, then tensors."""
        return tuple(part for part in (self.numeric, self.codes) if part.shape[1]) + self.tensors

    def take(self, positions: Array | slice) -> "Encoded":
        """The encoded rows at these positions (0 is the first encoded row), without rejections; a slice is a view."""
        return Encoded(
            numeric=self.numeric[positions],
            codes=self.codes[positions],
            tensors=tuple(tensor[positions] for tensor in self.tensors),
            rows=self.rows[positions],
        )

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> "Encoded":
        """The encoded rows of all parts in order, numbered from 0, without rejections. Needs at least one part."""
        rows = np.arange(sum(map(len, parts)), dtype=np.int64)
        alone = [part for part in parts if isinstance(part, EncodedRow)]
        if len(alone) == len(parts):
            numeric, codes, whole = alone[0].packing.joined([part.line for part in alone])
            return Encoded(numeric=numeric, codes=codes, rows=rows, whole=whole)
        return Encoded(
            numeric=np.concatenate([part.numeric for part in parts]),
            codes=np.concatenate([part.codes for part in parts]),
            tensors=tuple(np.concatenate(tensors) for tensors in zip(*(part.tensors for part in parts), strict=True)),
            rows=rows,
        )


class EncodedRow(Encoded):
    """One row that was given alone, packed: what is made of it, NumPy's arrays, is made where something asks for it."""

    __slots__ = ("line", "packing")

    def __init__(self, line: Line, packing: RowPacking) -> None:
        self.line = line
        self.packing = packing
        self.rows = _FIRST
        self.rejections = self.tensors = ()

    def __getattr__(self, name: str) -> Any:
        """What is not there yet."""
        if name not in {"numeric", "codes", "whole"}:
            raise AttributeError(name)
        self.numeric, self.codes, self.whole = self.packing.joined([self.line])
        return getattr(self, name)


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
        self._parts: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...] = (
            ((len(self.schema.dense_inputs),), np.dtype(np.float32)),
            ((len(self.schema.categoricals),), np.dtype(np.int64)),
            *((tensor.shape, DTYPES[tensor.dtype]) for tensor in self.schema.tensors),
        )
        scalars = [(field.name, field.rule) for field in self._fields if not isinstance(field.rule, TensorRule)]
        self._read = row_reader(scalars)
        self._names = tuple(name for name, _ in scalars)
        self._tensors: Plan = tuple((field.name, field.rule.decode) for field in self._fields if field.part > 1)
        self._packed = RowPacking(self._parts[0][0][0], self._parts[1][0][0])

    def for_tiles(self, rows: int) -> "Encoder":
        """The same encoder, whose ``rows`` leaves nothing to be filled up for passes of multiples of so many rows."""
        encoder = copy.copy(self)
        encoder._packed = self._packed.for_tiles(rows)  # noqa: SLF001 - its own
        return encoder

    def columns(self, table: pa.Table | pa.RecordBatch) -> Encoded:
        """Encodes a table. ColumnMissing names the first feature that it lacks; other columns are not looked at."""
        columns = [find_column(table, field.name) for field in self._fields]
        parts = self._allocated(table.num_rows)
        codes = np.zeros(table.num_rows, np.uint8)
        blamed = np.zeros(table.num_rows, np.int64)
        for position, (field, column) in enumerate(zip(self._fields, columns, strict=True)):
            values, broken = decode_column(field.rule, column)
            parts[field.part][:, field.place] = values
            if not broken.any():
                continue
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
        if len(rows) == 1 and not self._tensors:  # as most requests have it
            line = self._line(rows[0])
            if line is not None:
                return EncodedRow(line, self._packed)
        lines: list[Line] = []
        kept: list[int] = []
        tensors: list[list[Array]] = []
        rejections: list[Rejection] = []
        for position, row in enumerate(rows):
            line = self._line(row)
            more = [decode(row.get(name)) for name, decode in self._tensors] if self._tensors else []
            if line is None or Code in map(type, more):
                rejections.append(self._blamed(row, position))
                continue
            kept.append(position)
            lines.append(line)
            tensors.append(more)
        numeric, codes, whole = self._packed.joined(lines)
        return Encoded(
            numeric=numeric,
            codes=codes,
            tensors=self._stacked(tensors) if self._tensors else (),
            rows=np.array(kept, np.int64),
            rejections=tuple(rejections),
            whole=() if self._tensors else whole,
        )

    def _line(self, row: Mapping[str, object]) -> Line | None:
        """The numbers and codes of one row, packed; None where a value breaks a rule."""
        try:
            return self._read(row)
        except KeyError:  # it lacks a feature
            return self._read({name: row.get(name) for name in self._names})

    def _stacked(self, lines: Sequence[Sequence[Array]]) -> tuple[Array, ...]:
        """Each tensor from its rows of values."""
        return tuple(
            np.array([line[place] for line in lines], dtype).reshape(len(lines), *shape)
            for place, (shape, dtype) in enumerate(self._parts[2:])
        )

    def _blamed(self, row: Mapping[str, object], position: int) -> Rejection:
        """The first field in the schema's order whose value breaks a rule: that there is one is known."""
        broken = ((field.name, field.rule.decode(row.get(field.name))) for field in self._fields)
        name, code = next((name, value) for name, value in broken if type(value) is Code)
        return Rejection(row=position, code=code, field=name)

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
