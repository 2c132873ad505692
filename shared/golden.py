"""Golden rows: the rows by which a bundle is proved, on the host that built it and on each that loads it.

``golden.parquet`` holds the raw feature columns as the user's table had them, and behind them, under names that no
feature can have, what the encoder must make of each row (``forescore:input:0``, ...) and the scores that the graph
gave where it was built (``forescore:scores``).
"""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shared.encode import Encoded, Encoder
from shared.errors import BundleCorrupt, BundleError
from shared.fitted import Fitted
from shared.parquet_footer import require_footer
from shared.schema import Categorical, Feature, Schema, Tensor
from shared.tile import FORWARD_ROWS, Arrays

LEAST_ROWS = 32
MOST_ROWS = 512
_SPREAD = 64  # rows taken evenly from the table, besides those that cover something
_COMPANY_BYTES = 256 * 1024 * 1024
_VALUE_BYTES = 4096  # of one value unpacked, on average: a text may be long
_INPUT = "forescore:input:{}"
_SCORES = "forescore:scores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """Golden rows as they were built: the raw table, the expected graph inputs, the expected scores."""

    table: pa.Table
    inputs: Arrays
    scores: np.ndarray


def choose(fitted: Fitted, table: pa.Table) -> tuple[pa.Table, Encoded]:
    """Rows of the table, and variants of them, that cover missing, unseen, extreme and every category.

    Only rows that the encoder takes are chosen; BundleError when it takes none.
    """
    encoder = Encoder(fitted)
    encoded = encoder.columns(table)
    table = table.select([feature.name for feature in fitted.schema.features])
    if not len(encoded):
        reason = encoded.rejections[0] if encoded.rejections else None
        why = f"; the first: {reason.code.text} in {reason.field}" if reason else ""
        raise BundleError(f"golden rows: none of the {table.num_rows} rows passes the schema's rules{why}")
    chosen = table.take(pa.array(encoded.rows[_cover(encoded)]))
    variants = islice(_variants(fitted, chosen), MOST_ROWS - chosen.num_rows)
    chosen = pa.concat_tables([chosen, *variants])
    chosen = chosen.take(pa.array(encoder.columns(chosen).rows))
    repeats = -(-LEAST_ROWS // chosen.num_rows)
    chosen = pa.concat_tables([chosen] * repeats).combine_chunks()
    return chosen, encoder.columns(chosen)


def company(schema: Schema, inputs: Arrays) -> Arrays:
    """Rows for trying a graph out, by a fixed seed: the golden ones first, then rows mixed from their columns.

    The columns of numbers and codes are drawn each on its own, so that the mixed rows are new and stay in the domain;
    tensors are drawn together: token ids stay with their mask. In every other mixed row numbers lie anywhere between
    the least and the greatest golden one: whole numbers add up without rounding, and so in any order.
    """
    row_bytes = sum(part[0].nbytes for part in inputs)
    rows = max(LEAST_ROWS, min(FORWARD_ROWS, _COMPANY_BYTES // row_bytes))
    golden = len(inputs[0])
    count = max(rows - golden, 0)
    random = np.random.default_rng(0)
    together = random.integers(0, golden, count)
    flat = bool(schema.dense_inputs) + bool(schema.categoricals)
    mixed = []
    for place, part in enumerate(inputs):
        if place < flat:
            extra = np.take_along_axis(part, random.integers(0, golden, (count, part.shape[1])), axis=0)
            if part.dtype == np.float32:
                extra = _between(part, extra, random)
        else:
            extra = part[together]
        mixed.append(np.concatenate([part, extra])[:rows])
    return tuple(mixed)


def _between(part: np.ndarray, extra: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """``extra`` with every other row's numbers replaced by others between those of ``part``; what is missing stays."""
    least, greatest = (bound.reduce(part, axis=0).astype(np.float64) for bound in (np.fmin, np.fmax))
    drawn = (least + random.random(extra.shape) * (greatest - least)).astype(np.float32)
    replaced = (np.arange(len(extra)) % 2 == 1)[:, None] & ~np.isnan(extra)
    return np.where(replaced, drawn, extra)


def to_parquet(golden: Golden) -> bytes:
    """The bytes of ``golden.parquet``."""
    table = golden.table
    for place, part in enumerate(golden.inputs):
        table = table.append_column(_INPUT.format(place), _lists(part))
    table = table.append_column(_SCORES, _lists(golden.scores))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def from_parquet(data: bytes, schema: Schema, shapes: Sequence[tuple[int, ...]]) -> Golden:
    """Reads what ``to_parquet`` wrote; BundleCorrupt when it is anything else, before it is unpacked."""
    names = [feature.name for feature in schema.features]
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        _require_bounds(
            file, len(data), [*names, *map(_INPUT.format, range(len(shapes))), _SCORES], _row_values(schema, shapes)
        )
        table = file.read()
        inputs = tuple(_arrays(table, _INPUT.format(place), shape) for place, shape in enumerate(shapes))
        scores = _arrays(table, _SCORES, (len(schema.columns),))
        golden = Golden(table=table.select(names), inputs=inputs, scores=scores)
    except (pa.ArrowException, KeyError, TypeError, ValueError, OSError) as error:
        raise BundleCorrupt(f"golden.parquet cannot be read ({type(error).__name__}); build the bundle again") from None
    if golden.scores.dtype != np.float32:
        raise BundleCorrupt(f"golden.parquet has scores of type {golden.scores.dtype}, not float32; build it again")
    return golden


def _row_values(schema: Schema, shapes: Sequence[tuple[int, ...]]) -> int:
    """How many single values one row has in all columns together."""
    features = sum(feature.size if isinstance(feature, Tensor) else 1 for feature in schema.features)
    return features + sum(map(math.prod, shapes)) + len(schema.columns)


def _require_bounds(file: pq.ParquetFile, size: int, names: list[str], row_values: int) -> None:
    """A file of a few kilobytes can unpack to all of the memory, so what it says of itself comes first.

    Repeated values take no room in Parquet: a column may hold many of them in one row.
    """
    told, columns = file.metadata, file.schema_arrow
    if columns.names != names:
        raise BundleCorrupt("golden.parquet has other columns than the bundle's schema; build the bundle again")
    if not 0 < told.num_rows <= MOST_ROWS or told.num_row_groups > MOST_ROWS:
        raise BundleCorrupt(f"golden.parquet has {told.num_rows:,} rows, of 1 to {MOST_ROWS}; build the bundle again")
    require_footer(told, size)
    groups = [told.row_group(place) for place in range(told.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
    values = sum(chunk.num_values for chunk in chunks)
    most = told.num_rows * row_values
    if values > most or unpacked > most * _VALUE_BYTES:
        raise BundleCorrupt(
            f"golden.parquet unpacks to {values:,} values in {unpacked:,} bytes, and its rows have {most:,}; "
            "build the bundle again"
        )


def first_row(data: bytes, schema: Schema) -> dict[str, object]:
    """The features of the first golden row."""
    row: dict[str, object] = _read(data, [feature.name for feature in schema.features]).slice(0, 1).to_pylist()[0]
    return row


def _read(data: bytes, columns: list[str] | None = None) -> pa.Table:
    """One file, without what reads folders of them, which takes long to import."""
    return pq.ParquetFile(io.BytesIO(data)).read(columns)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two arrays are equal bit for bit, taking every NaN as the same."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype == np.float32:
        both = np.isnan(left) & np.isnan(right)
        return bool(np.all((left.view(np.uint32) == right.view(np.uint32)) | both))
    return bool(np.array_equal(left, right))


def _cover(encoded: Encoded) -> np.ndarray:
    """Positions of rows that show each code, each column's least, greatest and missing value, and a spread of rows."""
    picks: list[int] = []
    for column in encoded.codes.T:
        picks.extend(np.unique(column, return_index=True)[1].tolist())
    for column in encoded.numeric.T:
        missing = np.isnan(column)
        picks.extend(np.flatnonzero(missing)[:1].tolist())
        if not missing.all():
            picks.extend([int(np.nanargmin(column)), int(np.nanargmax(column))])
    spread = np.linspace(0, len(encoded) - 1, min(_SPREAD, len(encoded))).astype(int).tolist()
    return np.array(list(dict.fromkeys([*spread, *picks]))[: MOST_ROWS // 2])


def _variants(fitted: Fitted, chosen: pa.Table) -> Iterator[pa.Table]:
    """Copies of chosen rows with one value changed: to missing, to unseen, to each category."""
    nullable = pa.schema([field.with_nullable(True) for field in chosen.schema])
    for place, feature in enumerate(fitted.schema.features):
        row = chosen.slice(place % chosen.num_rows, 1).to_pylist()[0]
        for value in _values(fitted, feature):
            try:
                yield pa.Table.from_pylist([{**row, feature.name: value}], schema=nullable).cast(chosen.schema)
            except (pa.ArrowException, ValueError, TypeError):
                continue  # the table's type of this column cannot hold that value, so no table like it will


def _values(fitted: Fitted, feature: Feature) -> Iterator[object]:
    yield None
    if not isinstance(feature, Categorical):
        return
    vocabulary = fitted.vocabularies[feature.name]
    yield _unseen(vocabulary)
    yield from vocabulary


def _unseen(vocabulary: tuple[str, ...] | tuple[int, ...]) -> str | int:
    if isinstance(vocabulary[0], int):
        return max(int(word) for word in vocabulary) + 1
    word = "unseen"
    while word in vocabulary:
        word += "+"
    return word


def _lists(part: np.ndarray) -> pa.Array:
    flat = pa.array(part.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, part[0].size)


def _arrays(table: pa.Table, name: str, shape: tuple[int, ...]) -> np.ndarray:
    column = table.column(name).combine_chunks()
    if not pa.types.is_fixed_size_list(column.type):
        raise TypeError(name)
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat.reshape((len(column), *shape)))
