"""Micro-batching, without HTTP: whoever asks gets his own answer or his own error, and nobody another's."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from support.batching import BAD, A, B, C, Model, bench, rounded, run
from support.polling import eventually

from service.forward import Row
from shared.codes import Code
from shared.errors import NotReady, ScoringError, WrongShape
from shared.scorer import Scored, Scorer


def test_separate_calls_share_a_pass_and_have_their_own_answers(scorer: Scorer) -> None:
    """While a pass runs, a, b, c and a bad row come: 0.8581, 0.31 and 0.7311 in one pass, and a reason for the bad."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model) as desk:
            model.gate.clear()
            first = desk.start(A)
            await eventually(lambda: model.passes == [1])
            calls = [desk.start(row) for row in (A, B, BAD, C)]
            await eventually(lambda: desk.batcher.waiting_rows == 3 and calls[2].done())
            model.gate.set()
            found = await asyncio.gather(*calls)
            await first

        assert model.passes == [1, 3]
        assert [rounded(one) for one in found] == [[0.8581], [0.31], [], [0.7311]]
        assert [(one.row, one.code, one.field) for one in found[2].rejections] == [(0, Code.MISSING, "basket")]
        assert desk.metric("forescore_forward_rows_count") == 2
        assert desk.metric("forescore_forward_rows_sum") == 4

    run(story)


@given_settings(deadline=None, max_examples=30)
@given(
    calls=st.lists(st.lists(st.integers(0, 999), max_size=7), min_size=1, max_size=12),
    batch=st.integers(1, 9),
    wait=st.sampled_from([0, 0.002]),
)
def test_each_caller_gets_the_scores_of_his_rows(
    scorer: Scorer, calls: list[list[int]], batch: int, wait: float
) -> None:
    """However the rows of parallel callers fall into passes, each gets the bits of his own rows, in his own order."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model, batch=batch, wait=wait) as desk:
            found = await asyncio.gather(*(desk.ask(*map(distinct, numbers)) for numbers in calls))
        for numbers, scored in zip(calls, found, strict=True):
            expected = [number for number in numbers if number % 7]
            assert [numbers[place] for place in scored.rows] == expected
            assert [one.row for one in scored.rejections] == [at for at, number in enumerate(numbers) if not number % 7]
            alone = scorer.score(scorer.encoder.rows([distinct(number) for number in expected]))
            assert np.array_equal(scored.scores.view(np.uint32), alone.view(np.uint32))
        assert max(model.passes, default=0) <= batch
        assert sum(model.passes) == sum(number % 7 > 0 for numbers in calls for number in numbers)

    run(story)


def distinct(number: int) -> Row:
    """A row of its own for each number; every seventh is bad."""
    return {"visits": number / 100, "returns": 0, "basket": None if number % 7 == 0 else 1}


def test_an_idle_service_waits_for_nobody(scorer: Scorer) -> None:
    """However long a row may be held back, one that comes alone is scored at once."""

    async def story() -> None:
        async with bench(Model(scorer), wait=3600) as desk, asyncio.timeout(30):
            for _ in range(3):
                assert rounded(await desk.ask(A)) == [0.8581]

    run(story)


def test_a_pass_that_is_not_full_waits_for_more_after_another(scorer: Scorer) -> None:
    """Rows that came during a pass are held back until the next one is full."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model, batch=4, wait=3600) as desk, asyncio.timeout(30):
            model.gate.clear()
            calls = [desk.start(A)]
            await eventually(lambda: model.passes == [1])
            calls += [desk.start(B), desk.start(C)]
            await eventually(lambda: desk.batcher.waiting_rows == 2)
            model.gate.set()
            await calls[0]
            calls += [desk.start(A, B)]
            assert [rounded(one) for one in await asyncio.gather(*calls)] == [
                [0.8581],
                [0.31],
                [0.7311],
                [0.8581, 0.31],
            ]
        assert model.passes == [1, 4]

    run(story)


def test_a_row_is_held_back_no_longer_than_the_limit(scorer: Scorer) -> None:
    """With nobody else to come, the pass begins when its oldest row has waited long enough."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model, wait=0.05) as desk, asyncio.timeout(30):
            model.gate.clear()
            calls = [desk.start(A)]
            await eventually(lambda: model.passes == [1])
            calls.append(desk.start(B))
            await eventually(lambda: desk.batcher.waiting_rows == 1)
            model.gate.set()
            assert [rounded(one) for one in await asyncio.gather(*calls)] == [[0.8581], [0.31]]
        assert model.passes == [1, 1]

    run(story)


def test_a_request_of_many_rows_goes_through_several_passes(scorer: Scorer) -> None:
    """No pass has more rows than the limit, and the answer is in the order of the rows."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model, batch=4) as desk:
            scored = await desk.ask(*[A, B, C, BAD] * 3)
        assert rounded(scored) == [0.8581, 0.31, 0.7311] * 3
        assert scored.rows.tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
        assert [one.row for one in scored.rejections] == [3, 7, 11]
        assert model.passes == [4, 4, 1]

    run(story)


def test_rows_that_the_encoder_rejects_cost_no_pass(scorer: Scorer) -> None:
    """No row, or none that is right: an answer without a forward pass."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model) as desk:
            assert (await desk.ask()).scores.shape == (0, 1)
            assert [one.row for one in (await desk.ask(BAD, BAD)).rejections] == [0, 1]
            assert await desk.batcher.check(A) is None
            rejection = await desk.batcher.check(BAD)
            assert rejection is not None
            assert rejection.field == "basket"
        assert model.passes == []

    run(story)


def test_a_row_that_the_model_fails_on_costs_itself(scorer: Scorer) -> None:
    """One of the callers in a pass brought it; it is found by halving, and the others have their scores."""

    async def story() -> None:
        model = Model(scorer, _refusing(0.31))
        async with bench(model) as desk:
            model.gate.clear()
            first = desk.start(A)
            await eventually(lambda: len(model.passes) == 1)
            calls = [desk.start(A, C), desk.start(C, B), desk.start(A)]
            await eventually(lambda: desk.batcher.waiting_rows == 5)
            model.gate.set()
            found = await asyncio.gather(*calls)
            await first
        assert [rounded(one) for one in found] == [[0.8581, 0.7311], [0.7311], [0.8581]]
        assert [(one.row, one.code) for one in found[1].rejections] == [(1, Code.FORWARD_FAILED)]

    run(story)


def test_a_score_that_is_no_number_costs_its_row(scorer: Scorer) -> None:
    """NaN is told to the caller who brought the row, as in the batch job."""

    async def story() -> None:
        model = Model(scorer, lambda scores: np.where(np.isclose(scores, 0.3100255), np.float32(np.nan), scores))
        async with bench(model) as desk:
            scored = await desk.ask(A, B, C)
        assert rounded(scored) == [0.8581, 0.7311]
        assert [(one.row, one.code) for one in scored.rejections] == [(1, Code.NON_FINITE_SCORE)]

    run(story)


@pytest.mark.parametrize("wrong", [lambda scores: scores[:-1], lambda scores: np.vstack([scores, scores])])
def test_a_model_that_returns_another_number_of_rows(scorer: Scorer, wrong: Callable[[np.ndarray], np.ndarray]) -> None:
    """Every caller of the pass gets a typed error, and nobody waits for ever; the next pass works."""

    async def story() -> None:
        state = {"wrong": True}
        model = Model(scorer, lambda scores: wrong(scores) if state["wrong"] and len(scores) else scores)
        async with bench(model) as desk, asyncio.timeout(30):
            found = await asyncio.gather(desk.ask(A), desk.ask(B), desk.ask(C), return_exceptions=True)
            assert {type(one) for one in found} == {WrongShape}
            state["wrong"] = False
            assert rounded(await desk.ask(A)) == [0.8581]
            assert desk.metric("forescore_queue_rows") == 0

    run(story)


def test_a_pass_that_cannot_be_run_is_an_error_to_its_callers_only(scorer: Scorer) -> None:
    """Whatever happens in a pass, the next one begins."""

    async def story() -> None:
        state: dict[str, Any] = {"error": ScoringError("the device is gone")}

        def failing(scores: np.ndarray) -> np.ndarray:
            if state["error"] is not None:
                raise state["error"]
            return scores

        async with bench(Model(scorer, failing)) as desk, asyncio.timeout(30):
            found = await asyncio.gather(desk.ask(A), desk.ask(B), return_exceptions=True)
            assert {type(one) for one in found} == {ScoringError}
            state["error"] = None
            assert rounded(await desk.ask(A)) == [0.8581]

    run(story)


def test_one_of_three_who_wait_gives_up(scorer: Scorer) -> None:
    """The other two are answered; his rows are not scored, since their pass had not begun."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model) as desk, asyncio.timeout(30):
            model.gate.clear()
            first = desk.start(A)
            await eventually(lambda: model.passes == [1])
            calls = [desk.start(row) for row in (A, B, C)]
            await eventually(lambda: desk.batcher.waiting_rows == 3)
            calls[1].cancel()
            await eventually(lambda: desk.batcher.waiting_rows == 2)
            model.gate.set()
            assert [rounded(await calls[0]), rounded(await calls[2])] == [[0.8581], [0.7311]]
            await first
        assert calls[1].cancelled()
        assert model.passes == [1, 2]

    run(story)


def test_a_caller_who_gives_up_during_his_pass_harms_nobody(scorer: Scorer) -> None:
    """The pass ends, and its other callers have their answers."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model) as desk, asyncio.timeout(30):
            model.gate.clear()
            lone = desk.start(A)
            await eventually(lambda: model.passes == [1])
            calls = [desk.start(row) for row in (B, C)]
            await eventually(lambda: desk.batcher.waiting_rows == 2)
            lone.cancel()
            model.gate.set()
            assert [rounded(one) for one in await asyncio.gather(*calls)] == [[0.31], [0.7311]]

    run(story)


def test_a_thousand_who_give_up_and_a_thousand_who_do_not(scorer: Scorer) -> None:
    """After 1,000 cancelled calls, in every state of being served, the next 1,000 are good and the gauges at zero."""

    async def story() -> None:
        async with bench(Model(scorer), batch=16) as desk, asyncio.timeout(60):
            calls = [desk.start(distinct(number)) for number in range(1, 1001)]
            for call in calls:
                await asyncio.sleep(0)
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            assert sum(call.cancelled() for call in calls) > 100
            assert desk.metric("forescore_queue_rows") == 0

            numbers = [number for number in range(1, 1167) if number % 7][:1000]
            found = await asyncio.gather(*(desk.ask(distinct(number)) for number in numbers))
            assert {len(one.rows) for one in found} == {1}
            scores = [float(one.scores[0, 0]) for one in found]
            assert all(before < after for before, after in pairwise(scores))
            assert desk.metric("forescore_queue_rows") == 0
            assert desk.batcher.waiting_rows == 0

    run(story)


def test_whoever_waits_when_the_process_stops_is_told(scorer: Scorer) -> None:
    """NotReady for the waiting, and for those in the pass that nobody waits for any more."""

    async def story() -> None:
        model = Model(scorer)
        async with bench(model) as desk, asyncio.timeout(30):
            model.gate.clear()
            calls: Sequence[asyncio.Task[Scored]] = [desk.start(A)]
            await eventually(lambda: model.passes == [1])
            calls = [*calls, desk.start(B)]
            await eventually(lambda: desk.batcher.waiting_rows == 1)
            await desk.batcher.close()
            found = await asyncio.gather(*calls, return_exceptions=True)
            model.gate.set()
        assert [type(one) for one in found] == [NotReady, NotReady]

    run(story)


def _refusing(score: float) -> Callable[[np.ndarray], np.ndarray]:
    def misbehave(scores: np.ndarray) -> np.ndarray:
        if np.isclose(scores, score, atol=1e-4).any():
            raise RuntimeError("no")
        return scores

    return misbehave
