"""A batcher on a bench: a scorer with a gate before each pass, and the metrics in reach."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import numpy as np
from prometheus_client import CollectorRegistry

from service.batcher import Batcher, Limits, Threads
from service.forward import Row
from shared.clock import Clock, MonotonicClock
from shared.encode import Encoded
from shared.metrics import Metrics
from shared.scorer import Scored, Scorer
from shared.telemetry import StageTimer

A = {"visits": 1, "returns": 0, "basket": 2}
B = {"visits": 0, "returns": 3, "basket": 1}
C = {"visits": 2, "returns": 1, "basket": 0}
BAD = {"visits": 1, "returns": 0}


class Model:
    """The scorer, with a gate before each pass, and a way to misbehave."""

    def __init__(self, scorer: Scorer, misbehave: Callable[[np.ndarray], np.ndarray] | None = None) -> None:
        self.encoder = scorer.encoder
        self.columns = scorer.columns
        self.passes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self._scorer = scorer
        self._misbehave = misbehave or (lambda scores: scores)

    def score(self, encoded: Encoded) -> np.ndarray:
        if len(encoded):
            self.passes.append(len(encoded))
            assert self.gate.wait(30)
        return self._misbehave(self._scorer.score(encoded))


class Bench:
    """A batcher with its metrics."""

    def __init__(self, batcher: Batcher, registry: CollectorRegistry) -> None:
        self.batcher = batcher
        self._registry = registry

    async def ask(self, *rows: Row, until: float | None = None) -> Scored:
        return await self.batcher.score(rows, StageTimer(MonotonicClock()), until)

    def start(self, *rows: Row, until: float | None = None) -> "asyncio.Task[Scored]":
        return asyncio.get_running_loop().create_task(self.ask(*rows, until=until))

    def metric(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(name, labels)


@asynccontextmanager
async def bench(
    model: Model, *, batch: int = 256, wait: float = 0, queue: int = 4096, clock: Clock | None = None
) -> AsyncIterator[Bench]:
    registry = CollectorRegistry()
    limits = Limits(batch_rows=batch, wait_seconds=wait, queue_rows=queue)
    with ThreadPoolExecutor(1) as encode, ThreadPoolExecutor(1) as forward:
        threads = Threads(encode=encode, forward=forward)
        batcher = Batcher(model, threads, limits, clock or MonotonicClock(), Metrics(registry))  # type: ignore[arg-type]
        try:
            yield Bench(batcher, registry)
        finally:
            model.gate.set()
            await batcher.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def told() -> None:
        await story()

    asyncio.run(told())


def rounded(scored: Scored) -> list[float]:
    return [round(float(score), 4) for score in scored.scores[:, 0]]
