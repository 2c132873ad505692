import struct
from types import SimpleNamespace
from typing import cast

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st
from support.snapshots import snapshot_meta

from service.answers import Answer, Parity
from service.headers import CacheStatus, entity_tag
from service.lane_answers import Print, least, numeral, online_fields, online_press
from shared.answer import shortest
from shared.bundle import Bundle
from shared.layout import pack_scores
from shared.schema import Binary, MultiLabel

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
BITS = st.integers(0, 2**32 - 1).map(lambda bits: struct.unpack("<f", struct.pack("<I", bits))[0])


@given(FINITE | BITS.filter(lambda score: abs(score) < float("inf")))
def test_a_number_is_written_as_the_framework_writes_it(score: float) -> None:
    """The shortest decimal of the float32, for any of its bits."""
    assert numeral(score) == orjson.dumps(shortest(score))


def test_a_hundred_thousand_numbers_are_written_alike() -> None:
    """The same over random bits, and over what scores mostly are."""
    dice = np.random.default_rng(7)
    any_bits = dice.integers(0, 2**32, 50_000, dtype=np.uint32).view(np.float32)
    for scores in (any_bits[np.isfinite(any_bits)], dice.random(50_000, dtype=np.float32)):
        for score in scores.tolist():
            assert numeral(score) == orjson.dumps(shortest(score))


@given(st.floats(allow_nan=False, width=64), FINITE)
def test_a_threshold_is_compared_as_printed(threshold: float, score: float) -> None:
    """A score is at or above the least float32 exactly where its decimal is at or above the threshold."""
    bound = least(threshold)
    with np.errstate(over="ignore"):
        beside = float(np.nextafter(np.float32(bound), np.float32(-np.inf)))
    for one in (score, bound, beside):
        assert (one >= bound) == (shortest(one) >= threshold)


@given(st.text(min_size=1), FINITE, st.lists(FINITE, min_size=2, max_size=2), st.integers(0, 2**32 - 1), st.booleans())
def test_an_answer_is_the_framework_s(
    entity: str,
    score: float,
    tags: list[float],
    scored_at: int,
    online: bool,  # noqa: FBT001 - hypothesis calls it
) -> None:
    """Body and tag, for any id, scores, time and origin."""
    outputs = (Binary("buys", threshold=0.5), MultiLabel("tags", classes=("x", "y"), threshold=0.25))
    meta = snapshot_meta(outputs=outputs, data_as_of=5)
    press = Print(meta, "g" * 64)
    scores = (score, *tags)
    fields = press.read(pack_scores(scores, scored_at=scored_at, online=online))
    assert fields is not None
    answer = Answer(
        entity_id=entity,
        scores=scores,
        outputs=outputs,
        model=meta.model,
        model_version=meta.model_version,
        snapshot=meta.snapshot,
        source="cache",
        scored_at=scored_at,
        data_as_of=None if online else meta.data_as_of,
        parity="exact",
        cache=CacheStatus(),
    )
    body = answer.body(scored_at + 7)
    assert press.answer(orjson.dumps(entity), fields, b"7") == (orjson.dumps(body), entity_tag(body).encode())


@given(
    st.text(min_size=1) | st.none(), FINITE, st.integers(0, 2**32 - 1), st.sampled_from(["exact", "tolerance", None])
)
def test_an_online_answer_is_the_framework_s(entity: str | None, score: float, now: int, parity: Parity | None) -> None:
    """Body and tag of what is scored for its caller, for any id, score and time."""
    bundle = cast("Bundle", SimpleNamespace(name="m", version="1", schema=SimpleNamespace(outputs=(Binary("buys"),))))
    answer = Answer.from_online(
        entity, [score], bundle, scored_at=now, parity=parity, cache=CacheStatus(forwarded="miss")
    )
    press, name = online_press(bundle, parity), orjson.dumps(entity)
    body = answer.body(now)
    told = press.answer(name, online_fields([score], now), b"0")
    assert told == (orjson.dumps(body), entity_tag(body).encode())
    assert press.body(name, online_fields([score], now), b"0") == told[0]


def test_what_is_no_whole_score_is_not_read() -> None:
    """Other lengths, formats, flags, and numbers that are none."""
    press = Print(snapshot_meta(), "g" * 64)
    good = pack_scores([0.5], scored_at=1)
    assert press.read(good) is not None
    bad = [good[:-1], good + b"\0", b"\2" + good[1:], good[:1] + b"\2" + good[2:], b""]
    bad += [pack_scores([score], scored_at=1) for score in (float("nan"), float("inf"))]
    assert [press.read(value) for value in bad] == [None] * len(bad)
