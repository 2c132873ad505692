"""The two front doors of the encoder, and what comes through them."""

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.codes import Code, Rejection
from shared.encode import Encoded, Encoder
from shared.errors import ColumnMissing, ColumnRefused
from shared.fitted import Fitted, NumericFit, Vocabulary
from shared.schema import Boolean, Categorical, Feature, Numeric, Regression, Schema, Tensor

VOCABULARIES: list[Vocabulary] = [("a", "1", " b"), ("true", ""), (0, 1, -7, 2**53 + 1)]
FEATURES: list[Feature] = [
    Numeric("x"),
    Numeric("x", missing="mean"),
    Numeric("x", missing="indicator", log1p=True),
    Numeric("x", log1p=True, clip=(-0.5, 100)),
    Boolean("x"),
    Boolean("x", missing="indicator"),
    *(Categorical("x", vocabulary=words) for words in VOCABULARIES),
    *(Categorical("x", vocabulary=words, unseen="reject", missing="reject") for words in VOCABULARIES),
    Tensor("x", shape=(2,)),
    Tensor("x", shape=(2,), missing="zeros", dtype="bool"),
    Tensor("x", shape=(2, 2), dtype="int64", minimum=0, maximum=9),
    Tensor("x", shape=(4,), missing="zeros", minimum=-1, maximum=2.5),
]
WORDS = [
    "",
    " ",
    "a",
    " b",
    "1",
    "01",
    " 7\n",
    "true",
    "FALSE",
    "NaN",
    "inf",
    "1_0",
    "\u0663",
    "9007199254740993",
    "1e39",
]
WORDS += ["[1, 2]", "[[1, 2], [3, 4]]", "[1, null]", "[", "0.1", "-1", "1.", "+1", "123456789012345.12345678901234567"]


def encoder(*features: Feature) -> Encoder:
    return Encoder(fitted(*features))


def fitted(*features: Feature) -> Fitted:
    schema = Schema(features=features, outputs=(Regression("y"),))
    return Fitted(
        schema=schema,
        numeric={feature.name: NumericFit() for feature in features if isinstance(feature, Numeric)},
        vocabularies={feature.name: feature.vocabulary or () for feature in schema.categoricals},
    )


def same(one: Encoded, other: Encoded) -> bool:
    """Whether two encodings are equal bit for bit."""
    ours, theirs = ([each.numeric, each.codes, *each.tensors, each.rows] for each in (one, other))
    return one.rejections == other.rejections and all(
        (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes()) for a, b in zip(ours, theirs, strict=True)
    )


def integers(kind: pa.DataType, low: int, high: int) -> st.SearchStrategy[pa.Array]:
    edges = [edge for edge in (0, 1, -1, -7, 2**53, 2**53 + 1, -(2**53) - 1, low, high) if low <= edge <= high]
    return arrays(kind, st.integers(low, high) | st.sampled_from(edges))


def arrays(kind: pa.DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[pa.Array]:
    return st.lists(st.none() | values, max_size=8).map(lambda items: pa.array(items, kind))


def lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=4) | st.lists(values, min_size=2, max_size=2)


def fixed(values: st.SearchStrategy[Any], size: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, min_size=size, max_size=size) | st.lists(values, min_size=size, max_size=size)


FLOATS = st.sampled_from([0.0, -0.0, 1.0, 0.1, -1.0, 2.5, -0.99999999999, 3.5e38, 1e39, math.inf, math.nan, 1e-50])
HALVES = st.floats(width=16) | st.sampled_from([0.0, 1.0, -1.0])
TEXTS = st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
TEXTS |= st.floats().map(repr) | st.integers().map(str)
SMALL = st.integers(0, 9)
NUMBERS = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-9, 9) | st.sampled_from([2**53 + 1, -(2**63)])),
    (pa.uint64(), st.integers(0, 9) | st.just(2**64 - 1)),
    (pa.float16(), HALVES),
    (pa.float32(), st.floats(width=32) | st.sampled_from([0.0, 1.0, 2.5])),
    (pa.float64(), FLOATS),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXTS),
    (pa.decimal128(9, 2), st.decimals(-9, 9, places=2)),
    (pa.timestamp("us"), st.datetimes()),
]
MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001 (Arrow's are naive too)
KINDS: list[st.SearchStrategy[pa.Array]] = [
    integers(pa.int8(), -(2**7), 2**7 - 1),
    integers(pa.int16(), -(2**15), 2**15 - 1),
    integers(pa.int32(), -(2**31), 2**31 - 1),
    integers(pa.int64(), -(2**63), 2**63 - 1),
    integers(pa.uint8(), 0, 2**8 - 1),
    integers(pa.uint16(), 0, 2**16 - 1),
    integers(pa.uint32(), 0, 2**32 - 1),
    integers(pa.uint64(), 0, 2**64 - 1),
    arrays(pa.float16(), HALVES),
    arrays(pa.float32(), st.floats(width=32)),
    arrays(pa.float64(), FLOATS | st.floats()),
    arrays(pa.bool_(), st.booleans()),
    *(arrays(kind, TEXTS) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    arrays(pa.string(), TEXTS).map(lambda array: array.dictionary_encode()),
    arrays(pa.float64(), FLOATS).map(lambda array: array.dictionary_encode()),
    arrays(pa.int64(), SMALL).map(lambda array: array.dictionary_encode(null_encoding="encode")),
    *(arrays(kind, st.binary(max_size=2)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    arrays(pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4) | st.sampled_from([Decimal(0), Decimal(1)])),
    arrays(pa.decimal128(20, 0), st.integers(-(10**19), 10**19).map(Decimal)),
    arrays(pa.decimal256(40, 20), st.decimals(-(10**15), 10**15, places=20)),
    arrays(pa.date32(), st.dates()),
    arrays(pa.timestamp("us"), st.datetimes()),
    arrays(pa.timestamp("ns", "UTC"), MOMENTS),
    arrays(pa.time64("us"), st.times()),
    arrays(pa.duration("us"), st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999))),
    arrays(pa.struct({"a": pa.int64()}), st.fixed_dictionaries({"a": SMALL})),
    st.integers(0, 4).map(pa.nulls),
    *(arrays(pa.list_(kind), lists(values)) for kind, values in NUMBERS),
    *(arrays(pa.large_list(kind), fixed(values, 4)) for kind, values in NUMBERS),
    *(arrays(pa.list_(kind, 2), fixed(values, 2)) for kind, values in NUMBERS),
    *(arrays(pa.list_(kind, 4), fixed(values, 4)) for kind, values in NUMBERS),
    *(arrays(pa.list_(pa.list_(kind)), lists(lists(values)) | fixed(fixed(values, 2), 2)) for kind, values in NUMBERS),
    *(arrays(pa.list_(pa.list_(kind, 2)), lists(fixed(values, 2))) for kind, values in NUMBERS),
    *(arrays(pa.list_(pa.list_(kind, 2), 2), fixed(fixed(values, 2), 2)) for kind, values in NUMBERS),
    arrays(pa.list_view(pa.int64()), lists(SMALL)),
]
COLUMNS = st.sampled_from(range(len(KINDS))).flatmap(lambda which: KINDS[which])
CHUNKED = st.tuples(COLUMNS, st.integers(0, 8), st.integers(0, 8)).map(
    lambda drawn: pa.chunked_array([drawn[0].slice(drawn[1]), drawn[0].slice(0, drawn[2]), drawn[0].slice(2, 0)])
)


@settings(max_examples=500)  # many types by many rules
@given(COLUMNS | CHUNKED, st.sampled_from(FEATURES))
@example(pa.array([2.0**128 - 2.0**103, -1.0, 1.5e308]), FEATURES[0])
@example(pa.array([[1, 2], None, [1, None]]), FEATURES[-4])
def test_the_two_doors_are_one(column: pa.Array | pa.ChunkedArray, feature: Feature) -> None:
    """M1, C8: a column of any type gives the same bits and the same rejections as its values, one by one."""
    both = encoder(feature)
    by_column = both.columns(pa.table({"x": column}))
    by_value = both.rows([{"x": value} for value in column.to_pylist()])
    assert same(by_column, by_value)


@given(st.lists(st.none() | TEXTS, max_size=8), st.sampled_from(FEATURES))
def test_a_csv_column_is_its_texts(texts: list[str | None], feature: Feature) -> None:
    """C8: what a CSV file holds as text decodes as the same text in a request."""
    both = encoder(feature)
    assert same(both.columns(pa.table({"x": pa.array(texts, pa.string())})), both.rows([{"x": text} for text in texts]))


@given(COLUMNS, st.sampled_from(FEATURES), st.integers(0, 8))
def test_a_row_is_encoded_alone_as_in_company(column: pa.Array, feature: Feature, start: int) -> None:
    """What a slice of a table encodes to does not depend on the rows around it."""
    both = encoder(feature)
    alone = [both.columns(pa.table({"x": column.slice(row, 1)})) for row in range(len(column))][start:]
    together = both.columns(pa.table({"x": column.slice(start)}))
    parts = [part for part in alone if len(part)]
    assert not parts or same(Encoded.concat(parts), Encoded.concat([together]))
    assert [rejection.code for part in alone for rejection in part.rejections] == [
        rejection.code for rejection in together.rejections
    ]


TELCO: tuple[Feature, ...] = (
    Numeric("tenure"),
    Tensor("image", shape=(2,), missing="zeros"),
    Categorical("contract", vocabulary=("month", "year"), unseen="reject"),
    Numeric("charges", missing="mean"),
    Boolean("partner"),
)
ROWS: list[dict[str, object]] = [
    {"tenure": 1, "contract": "year", "charges": 2.5, "partner": True, "image": [1.0, 2.0]},
    {"tenure": None, "contract": "week", "charges": 2.5, "partner": True, "image": None},
    {"tenure": 3, "contract": None, "charges": None, "partner": False, "image": None},
    {"tenure": 4, "contract": "week", "charges": 1.0, "partner": None, "image": [5.0]},
    {"tenure": 5, "contract": "month", "charges": math.inf, "partner": True, "image": [3.0, 4.0]},
]


def both_doors() -> list[Encoded]:
    encode = encoder(*TELCO)
    return [
        encode.rows(ROWS),
        encode.columns(pa.Table.from_pylist(ROWS)),
        encode.columns(pa.RecordBatch.from_pylist(ROWS)),
    ]


@pytest.mark.parametrize("encoded", both_doors(), ids=["rows", "table", "batch"])
def test_a_bad_row_costs_itself(encoded: Encoded) -> None:
    """Good rows keep their places and values; each bad row is named once, by its first field in the schema's order."""
    assert encoded.rows.tolist() == [0, 2]
    assert encoded.rows.dtype == np.int64
    assert encoded.numeric.tolist()[0] == [1, 2.5, 1]
    assert np.isnan(encoded.numeric[1, 1])
    assert encoded.codes.tolist() == [[1], [2]]
    assert encoded.tensors[0].tolist() == [[1, 2], [0, 0]]
    assert encoded.rejections == (
        Rejection(row=1, code=Code.MISSING, field="tenure"),
        Rejection(row=3, code=Code.WRONG_SHAPE, field="image"),
        Rejection(row=4, code=Code.NOT_FINITE, field="charges"),
    )


def test_inputs_are_in_the_graphs_order() -> None:
    """The graph is given numeric, codes, then the tensors, each only if the schema has such a feature."""
    everything = both_doors()[0]
    assert [part.dtype for part in everything.inputs()] == [np.float32, np.int64, np.float32]
    only_codes = encoder(Categorical("x", vocabulary=("a",))).rows([{"x": "a"}])
    assert [part.tolist() for part in only_codes.inputs()] == [[[0]]]
    only_tensor = encoder(Tensor("x", shape=(2,))).rows([{"x": [1, 2]}])
    assert [part.tolist() for part in only_tensor.inputs()] == [[[1, 2]]]


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_rows_are_filled_up_to_whole_tiles(count: int) -> None:
    """The last row is repeated up to a multiple of the tile, in memory that is aligned as torch's."""
    plain = encoder(Numeric("n"), Categorical("x", vocabulary=(1, 2, 3)))
    given: list[dict[str, object]] = [{"n": row + 0.1, "x": row % 3} for row in range(count)]
    encoded = plain.for_tiles(4).rows(given)
    size = -(-count // 4) * 4
    assert [part.shape for part in encoded.whole] == [(size, 1), (size, 1)]
    for whole, part in zip(encoded.whole, plain.rows(given).inputs(), strict=True):
        assert whole.tobytes() == part.tobytes() + part[-1].tobytes() * (size - count)
        assert whole.ctypes.data % 64 == 0
    assert [part.tobytes() for part in encoded.inputs()] == [part.tobytes() for part in plain.rows(given).inputs()]


def test_wide_rows_are_filled_up_for_each_pass() -> None:
    """What waits for a pass takes little more memory than its values: a wide row is not repeated before."""
    wide = encoder(*(Numeric(f"n{number}", missing="mean") for number in range(100))).for_tiles(256)
    assert [len(part) for part in wide.rows([{}]).whole] == [1]


def test_what_is_in_tensors_is_filled_up_for_each_pass() -> None:
    """A model gets tensors as they came and may write into them, so that no pass is given those that were encoded."""
    assert encoder(Numeric("n"), Tensor("x", shape=(2,))).rows([{"n": 1, "x": [1, 2]}]).whole == ()


def test_take_takes_encoded_rows() -> None:
    """Positions count encoded rows; where these stood in the input goes with them."""
    taken = both_doors()[0].take(np.array([1, 0]))
    assert taken.rows.tolist() == [2, 0]
    assert taken.codes.tolist() == [[2], [1]]
    assert taken.tensors[0].tolist() == [[0, 0], [1, 2]]
    assert taken.rejections == ()


def test_concat_numbers_the_rows_anew() -> None:
    """Rows of several requests become one batch, in order."""
    one, other, _ = both_doors()
    joined = Encoded.concat([one, other])
    assert len(joined) == 4
    assert joined.rows.tolist() == [0, 1, 2, 3]
    assert joined.codes.tolist() == [[1], [2], [1], [2]]


@pytest.mark.parametrize(
    "encoded", [encoder(*TELCO).rows([]), encoder(*TELCO).columns(pa.Table.from_pylist(ROWS).slice(0, 0))]
)
def test_nothing_encodes_to_nothing(encoded: Encoded) -> None:
    """An empty input gives empty inputs of the right shapes and dtypes."""
    assert len(encoded) == 0
    assert [part.shape for part in encoded.inputs()] == [(0, 3), (0, 1), (0, 2)]
    assert [part.dtype for part in encoded.inputs()] == [np.float32, np.int64, np.float32]


def test_the_order_of_columns_and_keys_does_not_matter() -> None:
    """The schema's order counts, never the table's or the request's; what is no feature is not looked at."""
    turned = [dict(reversed([*row.items(), ("extra", object())])) for row in ROWS]
    table = pa.Table.from_pylist(ROWS).append_column("extra", pa.array([b"x"] * len(ROWS)))
    encode = encoder(*TELCO)
    assert same(encode.rows(turned), encode.rows(ROWS))
    assert same(encode.columns(table.select(table.column_names[::-1])), encode.columns(table))


def test_an_absent_key_is_a_missing_value() -> None:
    """A request need not write null."""
    encode = encoder(*TELCO)
    rows: Sequence[dict[str, object]] = [{"tenure": 1, "contract": "year", "partner": True}, {}]
    written: list[dict[str, object]] = [{feature.name: None for feature in TELCO} | row for row in rows]
    assert same(encode.rows(rows), encode.rows(written))


def test_an_absent_column_is_an_error() -> None:
    """A table of the wrong kind is refused as a whole, by the name of the first feature that it lacks."""
    with pytest.raises(ColumnMissing, match="'image'"):
        encoder(*TELCO).columns(pa.table({"tenure": [1]}))


def test_a_column_that_is_there_twice_is_refused() -> None:
    """Nothing is guessed about which of two columns is the feature."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(ColumnRefused, match="2 columns named 'x'"):
        encoder(Numeric("x")).columns(table)


def test_a_text_that_is_not_utf8_costs_its_row() -> None:
    """Broken bytes in a text column reject their row and no other."""
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xffa")])
    encoded = encoder(Categorical("x", vocabulary=("a",))).columns(pa.table({"x": column}))
    assert encoded.codes.tolist() == [[0]]
    assert encoded.rejections == (Rejection(row=0, code=Code.WRONG_TYPE, field="x"),)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62 + 1], pa.timestamp("ns")),  # nanoseconds that a Python datetime cannot hold
        pa.array([2**62], pa.timestamp("s")),
        pa.array([2**30], pa.date32()),
        pa.array([0], pa.timestamp("s", "Nowhere/Land")),
        pa.array([[2**62 + 1, 1]], pa.list_(pa.timestamp("ns"))),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("feature", [Numeric("x"), Tensor("x", shape=(2,)), Categorical("x", vocabulary=("a",))])
def test_what_python_cannot_hold_is_of_the_wrong_type(column: pa.Array, feature: Feature) -> None:
    """A value that has no Python form rejects its row and raises nothing."""
    encoded = encoder(feature).columns(pa.table({"x": column}))
    assert encoded.rejections == (Rejection(row=0, code=Code.WRONG_TYPE, field="x"),)


def test_every_nan_is_the_same_nan() -> None:
    """A missing number has one bit pattern, whatever bits it came with."""
    odd = np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    encoded = encoder(Numeric("x", missing="mean")).columns(pa.table({"x": pa.array(odd)}))
    assert encoded.numeric.tobytes() == np.full((2, 1), np.nan, np.float32).tobytes()


@given(COLUMNS, st.sampled_from([feature for feature in FEATURES if not isinstance(feature, Tensor)]))
def test_a_row_alone_is_encoded_as_in_company(column: pa.Array, feature: Feature) -> None:
    """A row that is kept packed holds the bits that it has among others, and is rejected for the same reason."""
    ours = encoder(feature).for_tiles(4)
    for row in ({"x": value} for value in column.to_pylist()):
        alone, company = ours.rows([row]), ours.rows([row, row])
        assert [one.code for one in company.rejections] == [one.code for one in alone.rejections] * 2
        assert [part[:1].tobytes() for part in company.inputs()] == [part.tobytes() for part in alone.inputs()]


def test_an_absent_feature_is_a_missing_one() -> None:
    """A row that lacks a feature is encoded as one that has null there, whatever the others are."""
    ours = encoder(Numeric("n", missing="mean"), Categorical("x", vocabulary=("a",)), Boolean("b", missing="indicator"))
    assert same(ours.rows([{"x": "a"}]), ours.rows([{"n": None, "x": "a", "b": None}]))


def test_rows_that_came_alone_are_joined_as_if_given_together() -> None:
    """Rows of several requests, joined for one pass, are what one request with all of them would be."""
    ours = encoder(Numeric("n"), Categorical("x", vocabulary=(1, 2, 3))).for_tiles(4)
    given: list[dict[str, object]] = [{"n": row + 0.1, "x": row % 3} for row in range(5)]
    joined, together = Encoded.concat([ours.rows([row]) for row in given]), ours.rows(given)
    assert same(joined, together)
    assert [part.tobytes() for part in joined.whole] == [part.tobytes() for part in together.whole]
