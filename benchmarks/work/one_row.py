"""``python -m benchmarks.work.one_row BUNDLE TABLE CALLS``: one row through encode and graph, and the graph call alone.

As the service does it: one thread, one row at a time, each another one, features as a request gives them.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.children import answer
from benchmarks.customers import features_of
from benchmarks.rounds import median
from shared.bundle import load_bundle
from shared.engine import EngineChoice
from shared.scorer import Scorer, open_scorer
from shared.settings import Settings

_ROWS = 512
_BLOCK = 100


def main() -> None:
    bundle, table, calls = sys.argv[1:]
    scorer = open_scorer(load_bundle(Path(bundle)), device="cpu", threads=1, engine=EngineChoice.of(Settings()))
    rows = list(features_of(pq.read_table(table).slice(0, _ROWS)))
    inputs = [_given(scorer, row) for row in rows]

    def whole(place: int) -> None:
        scorer.score(scorer.encoder.rows([rows[place]]))

    def graph(place: int) -> None:
        scorer.forward(inputs[place])

    taken = timed([whole, graph], len(rows), int(calls))
    answer(engine=scorer.engine, whole_us=taken[0], graph_us=taken[1])


def timed(tasks: Sequence[Callable[[int], None]], rows: int, calls: int) -> list[float]:
    """The median time of each task in microseconds; they take turns, a block of calls at a time."""
    spans: list[list[float]] = [[] for _ in tasks]
    for first in range(0, calls + _BLOCK, _BLOCK):
        for task, mine in zip(tasks, spans, strict=True):
            for place in (number % rows for number in range(first, first + _BLOCK)):
                started = time.perf_counter_ns()
                task(place)
                mine.append((time.perf_counter_ns() - started) / 1000)
    return [median(mine[_BLOCK:]) for mine in spans]  # the first block warms up


def _given(scorer: Scorer, row: dict[str, object]) -> tuple[np.ndarray, ...]:
    """What the graph is given for that row."""
    given: list[tuple[np.ndarray, ...]] = []

    def forward(inputs: tuple[np.ndarray, ...]) -> np.ndarray:
        given.append(inputs)
        return scorer.forward(inputs)

    replace(scorer, forward=forward).score(scorer.encoder.rows([row]))
    return given[0]


if __name__ == "__main__":
    main()
