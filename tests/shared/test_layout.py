"""The keys and the packed value."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.codes import Code
from shared.errors import SettingsError
from shared.layout import (
    NO_FIELD,
    Keys,
    bucket_of,
    buckets_for,
    buckets_of,
    models_key,
    pack_columns,
    pack_rejection,
    pack_scores,
    rates_key,
    unpack,
)
from shared.snapshot import Found, KnownRejected, Lost

KEYS = Keys("fs", "churn")
FIELDS = ("visits", "returns")
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
SECONDS = st.integers(0, 2**32 - 1)


def test_every_key_reads_as_written_down() -> None:
    """The examples in the docstrings are the keys."""
    snapshot = "2026.11.1-01J8Z3V5QW9XKD2M7R4T6Y8B0C"
    control = [KEYS.active(), KEYS.epoch(), KEYS.lease(), KEYS.history(), KEYS.snapshots(), KEYS.states()]
    assert [key.removeprefix("fs:{churn}:") for key in [*control, KEYS.versions()]] == [
        "active",
        "epoch",
        "lease",
        "history",
        "snapshots",
        "states",
        "versions",
    ]
    assert KEYS.bucket(snapshot, 17) == f"fs:churn:s:{snapshot}:17"
    assert KEYS.features("C0042") == "fs:churn:f:C0042"
    assert models_key("fs") == "fs:models"
    assert rates_key("fs") == "fs:rate"


@pytest.mark.parametrize("model", ["", "a:b", "{a}", "Churn", "-a", "a" * 65, "a b", "ä"])
def test_a_name_that_would_break_a_key_is_refused(model: str) -> None:
    """A model's name can hold nothing that means something in a key."""
    with pytest.raises(SettingsError, match="name has 1 to 64"):
        Keys("fs", model)


@pytest.mark.parametrize(("entities", "buckets"), [(0, 1), (1, 1), (48, 1), (49, 2), (480, 10), (500_000, 10_417)])
def test_buckets_hold_48_on_average(entities: int, buckets: int) -> None:
    """At least one, so that an empty snapshot exists."""
    assert buckets_for(entities) == buckets


@given(st.lists(IDS, max_size=50), st.integers(1, 10_000))
def test_the_column_form_of_the_bucket_is_the_one_row_form(ids: list[str], buckets: int) -> None:
    """The batch job writes where the service looks, whatever the ids."""
    expected = [bucket_of(entity_id, buckets) for entity_id in ids]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert buckets_of(pa.array(ids, kind), buckets).tolist() == expected


def test_buckets_of_a_slice_are_those_of_its_rows() -> None:
    """A column that begins in the middle of its buffer is read from there."""
    ids = pa.array([f"customer {number}" for number in range(100)])
    assert buckets_of(ids.slice(37, 20), 7).tolist() == buckets_of(ids, 7).tolist()[37:57]


def test_known_buckets_stay_where_they_are() -> None:
    """The vectors are fixed: another function would lose every entity of a snapshot that is resident."""
    assert [bucket_of(entity_id, 1000) for entity_id in ("C0042", "7", "007", "ä")] == [890, 346, 558, 35]


@given(st.lists(FLOATS, min_size=1, max_size=20), SECONDS, st.booleans())
def test_scores_come_back_bit_for_bit(scores: list[float], scored_at: int, online: bool) -> None:  # noqa: FBT001 - drawn
    """Every finite float32 survives, with its time and flag."""
    value = pack_scores(scores, scored_at=scored_at, online=online)
    assert unpack(value, len(scores), FIELDS) == Found(scores=tuple(scores), scored_at=scored_at, online=online)
    assert struct.pack(f"<{len(scores)}f", *scores) == value[6:]


@given(st.sampled_from(Code), st.sampled_from([None, 0, 1]), SECONDS)
def test_rejections_come_back(code: Code, field: int | None, scored_at: int) -> None:
    """Every code survives, and the field's name where one is to blame."""
    found = unpack(pack_rejection(code, field, scored_at=scored_at), 1, FIELDS)
    assert found == KnownRejected(code=code, field=None if field is None else FIELDS[field], scored_at=scored_at)


@given(st.lists(st.tuples(FLOATS, FLOATS, st.sampled_from([0, *Code]), st.sampled_from([NO_FIELD, 0, 1]))), SECONDS)
def test_the_column_form_packs_the_one_row_form(rows: list[tuple[float, float, int, int]], scored_at: int) -> None:
    """Scored and rejected rows in any order are the same bytes, whoever packs them."""
    scores = np.array([row[:2] for row in rows], dtype=np.float32).reshape(len(rows), 2)
    codes = np.array([row[2] for row in rows], dtype=np.uint8)
    fields = np.array([row[3] for row in rows], dtype=np.uint16)
    expected = [
        pack_rejection(Code(code), None if field == NO_FIELD else field, scored_at=scored_at)
        if code
        else pack_scores((one, two), scored_at=scored_at)
        for one, two, code, field in rows
    ]
    assert pack_columns(scores, scored_at=scored_at, codes=codes, fields=fields).to_pylist() == expected


def test_the_column_form_without_rejections_takes_any_layout_of_scores() -> None:
    """Columns in Fortran order, as a model may return them, are packed row by row."""
    scores = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    assert pack_columns(scores, scored_at=9).to_pylist() == [
        pack_scores(row, scored_at=9) for row in scores.astype(float).tolist()
    ]


@given(st.binary(max_size=24))
def test_foreign_bytes_are_never_a_crash(value: bytes) -> None:
    """Whatever lies in the store is an answer of the union."""
    assert isinstance(unpack(value, 1, FIELDS), Found | KnownRejected | Lost)


GOOD = pack_scores((0.5,), scored_at=1)
REJECTED = pack_rejection(Code.MISSING, 1, scored_at=1)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        pack_scores((0.5, 0.5), scored_at=1),
        b"\2" + GOOD[1:],
        GOOD[:1] + b"\4" + GOOD[2:],
        pack_scores((float("nan"),), scored_at=1),
        pack_scores((float("inf"),), scored_at=1),
        REJECTED[:-1],
        REJECTED[:6] + b"\xfe" + REJECTED[7:],
        REJECTED[:7] + b"\2\0",
        b'{"score": 0.5}',
    ],
)
def test_bytes_that_are_not_ours_are_corrupt(value: bytes) -> None:
    """Another format, flag, length, code or field, or a score that is not finite, is no answer."""
    assert unpack(value, 1, FIELDS) == Lost("corrupt")
