"""Customers that are scored and published, whole tables and parts that join, on a store in memory."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from batch_job.into import Into
from batch_job.job import Means, open_job
from batch_job.manifest import RunManifest
from batch_job.progress import Silent
from batch_job.publish import publish_run
from batch_job.run import run_job
from shared.bundle import Bundle
from shared.settings import GateSettings
from shared.snapshot import Found, KnownRejected, Lookup, SnapshotMeta, SnapshotState
from shared.store.interfaces import OnlineScore
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

Write = Callable[..., Path]
A, B, C, D = 0.8581489, 0.3100255, 0.7310586, 0.6899745
"""The scores of (visits, returns, basket) = (1, 0, 2), (0, 3, 1), (2, 1, 0), (1, 1, 1)."""

ROWS = {A: (1, 0, 2), B: (0, 3, 1), C: (2, 1, 0), D: (1, 1, 1), None: (None, 1, 1)}


FIVE: dict[str | None, float | None] = {"a": A, "b": B, "c": C, "d": D, "bad": None}
PART: dict[str | None, float | None] = {"b": C, "new": A, "bad": D, "c": None}


class Bench:
    """Scores and publishes customers; every run is a second later than the one before."""

    def __init__(self, bundle: Bundle, means: Means, write: Write, folder: Path) -> None:
        assert isinstance(means.clock, FrozenClock)
        self.clock = means.clock
        self.memory = MemoryStore("purchase", self.clock)
        self.store = self.memory.store
        self.bundle, self.write, self.folder = bundle, write, folder
        settings = means.settings.model_copy(update={"gates": GateSettings(max_psi=100, min_coverage=0.5)})
        self.means = replace(means, entropy=os.urandom, settings=settings)
        self._runs = 0

    def score(self, customers: dict[str | None, float | None], **options: object) -> Path:
        """A run over customers, each with the row that gives the score; None is rejected."""
        self._runs += 1
        self.clock.advance(1)
        visits, returns, basket = zip(*(ROWS[score] for score in customers.values()), strict=True)
        path = self.write(
            f"t{self._runs}.parquet",
            customer_id=pa.array(list(customers), pa.string()),
            visits=visits,
            returns=returns,
            basket=basket,
        )
        out = self.folder / f"run{self._runs}"
        given: dict[str, object] = {"chunk_size": 3, "data_as_of": 1000 + self._runs, **options}
        run_job(open_job(path, bundle=self.bundle, **given), out, self.means)  # type: ignore[arg-type]
        return out

    def publish(self, out: Path, into: Into = Into.ALONE) -> RunManifest:
        return publish_run(out, self.store, self.means, into=into)

    def whole(self, customers: dict[str | None, float | None]) -> RunManifest:
        return self.publish(self.score(customers))

    def part(self, customers: dict[str | None, float | None], into: Into) -> RunManifest:
        return self.publish(self.score(customers), into)

    def gates(self, **changes: float) -> None:
        settings = self.means.settings.model_copy(update={"gates": GateSettings.model_validate(changes)})
        self.means = replace(self.means, settings=settings)

    def at_step(self, name: str, act: Callable[[], object]) -> None:
        """Lets something happen at a step of what follows, once."""
        self.means = replace(self.means, observer=_Once(name, act))

    @property
    def active(self) -> SnapshotMeta:
        active = self.store.catalogue.active()
        assert active is not None
        return active.meta

    def look_up(self, *ids: str, meta: SnapshotMeta | None = None) -> list[Lookup]:
        return list(self.store.writer.read(meta or self.active, ids))

    def scores(self, *ids: str, meta: SnapshotMeta | None = None) -> list[object]:
        return [_plain(found) for found in self.look_up(*ids, meta=meta)]

    def online(self, entity_id: str, score: float) -> None:
        """What the service does with a score of its own."""
        scored = OnlineScore(entity_id, [score], int(self.clock.now()))
        assert asyncio.run(self.memory.async_store.online.write_back(self.active, [scored])) == [True]

    def resident(self, snapshot: str) -> SnapshotMeta:
        return next(row.meta for row in self.store.catalogue.snapshots() if row.meta.snapshot == snapshot)

    def states(self) -> dict[str, SnapshotState]:
        return {row.meta.snapshot: row.state for row in self.store.catalogue.snapshots()}


class _Once(Silent):
    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self._left, self._act = [name], act

    def step(self, name: str) -> None:
        if name in self._left:
            self._left.remove(name)
            self._act()


def _plain(found: Lookup) -> object:
    match found:
        case Found(scores=scores):
            return float(np.float32(scores[0])).__round__(7)
        case KnownRejected(code=code):
            return code.text
        case _:
            return None
