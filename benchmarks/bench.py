"""What the measurements share. Each thing is made when it is first asked for, and closed when the bench ends."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from redis import Redis

from benchmarks import customers, servers
from benchmarks.children import ask, forescore, run
from benchmarks.load import write_book
from benchmarks.places import ROOT
from benchmarks.references.lesson import publish
from benchmarks.servers import Server
from benchmarks.sizes import Sizes
from shared.bundle import load_bundle
from shared.engine import EngineChoice
from shared.scorer import Scorer, open_scorer

T = TypeVar("T")

BUNDLE = "examples.telco_churn.train:bundle"
UNSEEN = "U"
PATIENT = {
    "FORESCORE_REDIS__READ_TIMEOUT_MS": "10000",
    "FORESCORE_FEATURES__TIMEOUT_MS": "10000",
    "FORESCORE_SERVICE__DEADLINE_MS": "30000",
}
"""Nothing is given up because it is late."""
ENGINES = {"FORESCORE_ENGINE_CACHE": str(ROOT / ".forescore" / "engines")}
"""Where `forescore bundle build` leaves what it compiled, when it is called here."""


class Bench:
    """A folder, how much is done, and what is open."""

    def __init__(self, folder: Path, sizes: Sizes, stack: ExitStack, bundle: Path | None = None) -> None:
        self.folder = folder
        self.sizes = sizes
        self._stack = stack
        self._bundle = bundle

    def open(self, context: AbstractContextManager[T]) -> T:
        """Opens something until ``rest``, or the end of the bench."""
        return self._stack.enter_context(context)

    def rest(self) -> None:
        """Ends all that is open: what is measured next has the machine for itself, and opens anew what it needs."""
        self._stack.close()
        for name in ("store", "service", "naive_get", "constant", "naive_torch"):
            self.__dict__.pop(name, None)

    def new(self, name: str) -> Path:
        """A path in the folder that is not there yet."""
        return self.folder / f"{name}-{len(list(self.folder.glob(f'{name}-*')))}"

    def new_store(self) -> str:
        """The URL of an empty Valkey server."""
        return self.open(servers.valkey(self.folder))

    def settings(self, store: str) -> dict[str, str]:
        """The settings of a command that works with this store; all others are the defaults."""
        place = {"FORESCORE_REDIS__URL": store, "FORESCORE_HOME": str(self.folder / "home"), **ENGINES}
        return place | (PATIENT if self.sizes.patient else {})

    @cached_property
    def bundle(self) -> Path:
        """The one that was given, or the example's, trained and built anew."""
        if self._bundle is not None:
            return self._bundle
        out = self.folder / "bundle"
        run(forescore("bundle", "build", BUNDLE, str(out)), **ENGINES)
        return out

    @cached_property
    def scorer(self) -> Scorer:
        """Says what an answer must be: with the engine that the service finds."""
        engine = EngineChoice(wanted="auto", cache=Path(ENGINES["FORESCORE_ENGINE_CACHE"]))
        return open_scorer(load_bundle(self.bundle), device="cpu", threads=1, engine=engine)

    @cached_property
    def small(self) -> Path:
        return customers.write_resampled(self.folder / "small.parquet", self.sizes.small_rows, seed=1, prefix="N")

    @cached_property
    def big(self) -> Path:
        return customers.write_resampled(self.folder / "big.parquet", self.sizes.big_rows, seed=2, prefix="N")

    @cached_property
    def big_run(self) -> Path:
        """The run of the big table, scored and not published."""
        out = self.folder / "big-run"
        ask("benchmarks.work.score", str(self.bundle), str(self.big), str(out))
        return out

    @cached_property
    def store(self) -> str:
        """A store with the small table's snapshot, and beside it one key for each entity."""
        url = self.new_store()
        out = self.new("small-run")
        run(forescore("backfill", str(self.bundle), str(self.small), "--out", str(out)), **self.settings(url))
        with Redis.from_url(url) as client:
            publish(client, list(_plain_rows(out)))
        return url

    @cached_property
    def service(self) -> Server:
        return self.open(servers.serve(self.folder, self.bundle, self.settings(self.store)))

    @cached_property
    def naive_get(self) -> Server:
        app = "benchmarks.references.naive_get:app"
        return self.open(servers.asgi(self.folder, app, {"BENCH_REDIS_URL": self.store}))

    @cached_property
    def constant(self) -> Server:
        return self.open(servers.asgi(self.folder, "benchmarks.references.constant:app", {}))

    @cached_property
    def naive_torch(self) -> Server:
        app = "benchmarks.references.naive_torch:app"
        return self.open(servers.asgi(self.folder, app, {"BENCH_BUNDLE": str(self.bundle)}))

    def expected(self, rows: Sequence[dict[str, object]]) -> np.ndarray:
        """The scores of rows: float32 [rows]."""
        scores: np.ndarray = self.scorer.score(self.scorer.encoder.rows(rows))[:, 0]
        return scores

    def known(self) -> pa.Table:
        """The customers that requests for cached scores ask for: as many as there are different requests."""
        table = pq.read_table(self.small)
        picked = np.random.default_rng(3).permutation(len(table))[: self.sizes.bodies]
        return table.take(pa.array(picked))

    def unseen(self) -> pa.Table:
        """Customers whom no snapshot has, and whose features are in the store: those of all rounds, and the warm-up."""
        rows = self.sizes.unseen * (self.sizes.rounds + 1)
        path = customers.write_resampled(self.folder / "unseen.parquet", rows, seed=4, prefix=UNSEEN)
        command = forescore("features", "load", str(path), "--bundle", str(self.bundle))
        run(command, **self.settings(self.store))
        return pq.read_table(path)

    def book(self, name: str, lines: Iterator[str]) -> Path:
        return write_book(self.folder / f"{name}.book", lines)


def _plain_rows(run_dir: Path) -> Iterator[dict[str, object]]:
    for part in sorted((run_dir / "parts").glob("*.parquet")):
        table = pq.read_table(part, columns=["entity_id", "churn"])
        for entity, churn in zip(table["entity_id"].to_pylist(), table["churn"].to_pylist(), strict=True):
            yield {"entity_id": entity, "churn": churn, "prediction": churn >= 0.5}  # noqa: PLR2004 - the threshold of the model


def json_line(method: str, path: str, body: object) -> str:
    """A line of a book, with a body."""
    return f"{method} {path} {json.dumps(body, separators=(',', ':'))}"


def load_average() -> float:
    """How many processes wanted to run in the last minute."""
    return round(os.getloadavg()[0], 2)
