"""The threads that make the forward passes."""

from dataclasses import dataclass, field
from threading import Barrier

import numpy as np
import pytest

from batch_job import forward
from batch_job.forward import ForwardThreads
from shared.codes import Code, Rejection
from shared.encode import Encoded

SECONDS = 30


@dataclass
class Meeting:
    """Scores that give each row its own number, once two passes are there at the same time."""

    golden_digest: str = "g"
    barrier: Barrier = field(default_factory=lambda: Barrier(2))

    def score(self, encoded: Encoded) -> np.ndarray:
        if len(encoded):
            self.barrier.wait(SECONDS)
        return encoded.numeric[:, :1]


def test_several_passes_at_once_give_what_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a chunk are scored by all threads, and come back in order with the rejections in place."""
    monkeypatch.setattr(forward, "FORWARD_ROWS", 4)
    rows = np.arange(32, dtype=np.int64) * 2
    values = np.arange(32, dtype=np.float32)[:, None].copy()
    values[5] = np.nan
    encoded = Encoded(
        numeric=values,
        codes=np.empty((32, 0), np.int64),
        rows=rows,
        rejections=(Rejection(row=3, code=Code.MISSING, field="x"),),
    )
    threads = ForwardThreads(Meeting, 2)
    scored = threads.score_each(encoded, SECONDS)
    threads.end()
    kept = np.delete(np.arange(32), 5)
    assert scored.rows.tolist() == rows[kept].tolist()
    assert scored.scores[:, 0].tolist() == kept.astype(float).tolist()
    assert [(each.row, each.code) for each in scored.rejections] == [(3, Code.MISSING), (10, Code.NON_FINITE_SCORE)]


@pytest.mark.parametrize(("rows", "threads"), [(0, 1), (1, 2), (4097, 2), (50_000, 2), (50_000, 16)])
def test_the_slices_cover_each_row_once_in_whole_passes(rows: int, threads: int) -> None:
    """Only the last pass of a chunk may be short, and even no rows are one slice."""
    slices = list(forward._slices(rows, threads))
    assert [place for part in slices for place in range(rows)[part]] == list(range(rows))
    assert all(part.start % forward.FORWARD_ROWS == 0 for part in slices)
    assert len(slices) == 1 or rows > forward.FORWARD_ROWS
