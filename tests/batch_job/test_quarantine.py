"""Forward passes with a time limit."""

from threading import current_thread

import numpy as np
import pytest
from support.doubles import DIES, HANGS, RAISES, misbehaving

from batch_job import quarantine
from batch_job.forward import Certified
from batch_job.quarantine import TimedScores
from shared.codes import Code, Rejection
from shared.encode import Encoded
from shared.errors import ScoringError
from shared.scorer import Scored

SECONDS = 1.0


def encoded(*values: float, rejections: tuple[Rejection, ...] = ()) -> Encoded:
    """Rows at the odd positions of their input."""
    return Encoded(
        numeric=np.array(values, np.float32)[:, None],
        codes=np.empty((len(values), 0), np.int64),
        rows=np.arange(len(values)) * 2 + 1,
        rejections=rejections,
    )


def fates(scored: Scored) -> tuple[dict[int, float], dict[int, Code]]:
    scores = dict(zip(scored.rows.tolist(), scored.scores[:, 0].tolist(), strict=True))
    return scores, {rejection.row: rejection.code for rejection in scored.rejections}


def score(rows: Encoded, seconds: float = SECONDS) -> tuple[dict[int, float], dict[int, Code]]:
    with TimedScores(misbehaving(), seconds) as scores:
        return fates(scores.score_each(rows))


def test_what_comes_back_in_time_is_scored_as_ever() -> None:
    """Rows that fail cost themselves, and rejections of the encoder are kept."""
    rows = encoded(1, RAISES, 3, rejections=(Rejection(row=0, code=Code.MISSING, field="x"),))
    assert score(rows, seconds=60) == ({1: 1.0, 5: 3.0}, {0: Code.MISSING, 3: Code.FORWARD_FAILED})


def test_a_row_that_hangs_is_rejected_and_its_neighbours_are_scored() -> None:
    """D11: a real hang ends in TIMEOUT for that row alone; a row that fails beside it fails as ever."""
    rows = encoded(0, 1, HANGS, 3, RAISES, 5, 6, rejections=(Rejection(row=2, code=Code.MISSING, field="x"),))
    assert score(rows) == (
        {1: 0.0, 3: 1.0, 7: 3.0, 11: 5.0, 13: 6.0},
        {2: Code.MISSING, 5: Code.TIMEOUT, 9: Code.FORWARD_FAILED},
    )


def test_a_row_that_kills_the_process_is_rejected() -> None:
    """In the quarantine a crash of the process costs the row that caused it."""
    assert score(encoded(HANGS, 1, DIES)) == ({3: 1.0}, {1: Code.TIMEOUT, 5: Code.FORWARD_FAILED})


def test_a_chunk_of_one_row_that_hangs() -> None:
    """Nothing is scored, and the one row is rejected."""
    assert score(encoded(HANGS)) == ({}, {1: Code.TIMEOUT})


def test_the_next_chunk_is_scored_after_a_hang() -> None:
    """D11: the run goes on."""
    with TimedScores(misbehaving(), SECONDS) as scores:
        scores.score_each(encoded(HANGS))
        assert fates(scores.score_each(encoded(7))) == ({1: 7.0}, {})


def test_a_model_that_always_hangs_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of hanging rows it is the model, and the error says what to change."""
    monkeypatch.setattr(quarantine, "MAX_HANGING", 1)
    with pytest.raises(ScoringError, match="does not come back: 2 rows exceeded the limit of 1 s"):
        score(encoded(HANGS, HANGS))


def test_a_bundle_that_does_not_open_is_raised() -> None:
    """What opening raises reaches the caller."""
    with (
        TimedScores(lambda: (_ for _ in ()).throw(ScoringError("closed")), 1) as scores,  # type: ignore[misc]
        pytest.raises(ScoringError, match="closed"),
    ):
        scores.score_each(encoded(1))


def test_nothing_is_opened_before_it_is_begun() -> None:
    """Who begins lets a thread open the scores; once, however often; and what is never needed is never opened."""
    opened: list[str] = []

    def open_scores() -> Certified:
        opened.append(current_thread().name)
        return misbehaving()()

    with TimedScores(open_scores, SECONDS) as scores:
        pass
    assert not opened
    with TimedScores(open_scores, SECONDS) as scores:
        scores.begin()
        scores.begin()
        assert fates(scores.score_each(encoded(7))) == ({1: 7.0}, {})
    assert opened == ["forward-0"]


def test_few_rows_have_less_time_than_a_chunk() -> None:
    """A part of the rows has a part of the limit, and at least a few seconds."""
    scores = TimedScores(misbehaving(), 300)
    assert [scores._limit(rows, 50_000) for rows in (50_000, 25_000, 1)] == [300, 150, 5]
    assert TimedScores(misbehaving(), 1)._limit(1, 50_000) == 1
