"""Answers over HTTP: hits, misses and posted features, beside the references, with everything up at the same time."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import servers
from benchmarks.bench import Bench, json_line
from benchmarks.caller import Plan
from benchmarks.customers import ENTITY, features_of
from benchmarks.errors import Broken
from benchmarks.load import Load, by_caller, repeat
from benchmarks.results import Finding
from benchmarks.rounds import interleaved, median, spread
from benchmarks.servers import Server

Rows = list[dict[str, object]]
_CLOSE = 1e-5
"""How far the score of a reference may be off: it computes in another order."""
_CHECKED = 64
_WARM_SECONDS = 1.0


def hit(bench: Bench) -> Iterator[Finding]:
    """``GET /score/ID`` of customers in the snapshot."""
    known = bench.known()
    rows = list(features_of(known))
    book = bench.book("hit", (f"GET /score/{entity}" for entity in known[ENTITY].to_pylist()))
    _check(bench, bench.service, book, rows, _cached)
    _check(bench, bench.naive_get, book, rows, _plain)
    loads = _repeated(
        bench, {"product": (bench.service, book), "naive": (bench.naive_get, book), "constant": (bench.constant, book)}
    )
    yield _rates("hit-naive", loads["product"], loads["naive"])
    yield _rates("hit-constant", loads["product"], loads["constant"])
    yield _compared("hit-p99", [load.p99_ms for load in loads["product"]], [load.p99_ms for load in loads["constant"]])


def miss(bench: Bench) -> Iterator[Finding]:
    """``GET /score/ID`` of customers whom no snapshot has, each asked for once; the reference is given the features."""
    unseen, sizes = bench.unseen(), bench.sizes
    rows = list(features_of(unseen))
    book = bench.book("miss", (f"GET /score/{entity}" for entity in unseen[ENTITY].to_pylist()))
    posts = bench.book("given", (json_line("POST", "/score", row) for row in rows))

    def round_of(server: Server, book: Path, read: Callable[[Any], float]) -> Callable[[int], Load]:
        def once(place: int) -> Load:
            plan = Plan(
                port=server.port,
                book=str(book),
                connections=sizes.connections,
                first=place * sizes.unseen,
                amount=sizes.unseen,
            )
            load = by_caller(plan)
            _require_scores(bench, load.samples, rows, read)
            return load

        return once

    tasks = {
        "product": round_of(bench.service, book, _online),
        "naive": round_of(bench.naive_torch, posts, _plain),
    }
    for task in tasks.values():  # the last entities warm up
        task(sizes.rounds)
    loads = interleaved(sizes.rounds, tasks)
    yield _rates("miss-naive", loads["product"], loads["naive"], f"own client; engine: {_engine(bench)}")


def post(bench: Bench) -> Iterator[Finding]:
    """``POST /score`` with one customer's features."""
    rows = list(features_of(bench.known()))
    single = bench.book("single", (json_line("POST", "/score", row) for row in rows))
    many = bench.book("many", (json_line("POST", "/score", {"customers": [row]}) for row in rows))
    items = bench.book("items", (json_line("POST", "/score", {"items": [{"features": row}]}) for row in rows))
    targets = {"product": (bench.service, items), "naive": (bench.naive_torch, single)}
    for name, module, book in (("litserve", "litserve", single), ("bentoml", "bentoml", many)):
        if (server := _optional(bench, module)) is not None:
            targets[name] = (server, book)
    readers = {"product": _posted, "naive": _plain, "litserve": _plain, "bentoml": _first_plain}
    for name, (server, book) in targets.items():
        _check(bench, server, book, rows, readers[name])
    loads = _repeated(bench, targets)
    for name in ("naive", "litserve", "bentoml"):
        if name in loads:
            yield _rates(f"post-{name}", loads["product"], loads[name], f"engine: {_engine(bench)}")
        else:
            yield Finding(key=f"post-{name}", note="not installed")


def _optional(bench: Bench, module: str) -> Server | None:
    """The server of an optional package, where it is installed: here, or in the environment of ``BENCH_PYTHON``."""
    for python in (sys.executable, os.environ.get("BENCH_PYTHON")):
        if python and _has(python, module):
            settings = {"BENCH_BUNDLE": str(bench.bundle)}
            return bench.open(servers.script(bench.folder, python, f"benchmarks.references.{module}_app", settings))
    return None


def _has(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def _engine(bench: Bench) -> str:
    """The engine that the service says it has."""
    return engine_of(bench.service)


def engine_of(server: Server) -> str:
    """What ``GET /model`` says."""
    return str(servers.get_json(server, "/model")["engine"])


def _repeated(bench: Bench, targets: Mapping[str, tuple[Server, Path]]) -> dict[str, list[Load]]:
    """Rounds of the same length, after a warm-up of each."""
    sizes = bench.sizes
    for server, book in targets.values():
        repeat(server.port, book, sizes.connections, min(_WARM_SECONDS, sizes.round_seconds))

    def round_of(server: Server, book: Path) -> Callable[[int], Load]:
        return lambda _: repeat(server.port, book, sizes.connections, sizes.round_seconds)

    return interleaved(sizes.rounds, {name: round_of(server, book) for name, (server, book) in targets.items()})


def _check(bench: Bench, server: Server, book: Path, rows: Rows, read: Callable[[Any], float]) -> None:
    """Asks some requests of a book, and looks at the answers."""
    amount = min(_CHECKED, len(rows))
    plan = Plan(port=server.port, book=str(book), connections=1, amount=amount, samples=amount)
    _require_scores(bench, by_caller(plan).samples, rows, read)


def _require_scores(bench: Bench, samples: Sequence[tuple[int, str]], rows: Rows, read: Callable[[Any], float]) -> None:
    """Broken if a score is not the row's: to the bit for the product, about for a reference."""
    exact = read not in {_plain, _first_plain}
    expected = bench.expected([rows[line] for line, _ in samples])
    for (line, body), score in zip(samples, expected, strict=True):
        found: float | None = None
        with suppress(ValueError, LookupError, TypeError):
            found = read(json.loads(body))
        if found is None or not (np.float32(found) == score if exact else abs(found - score) < _CLOSE):
            raise Broken(f"request {line}: a wrong answer: {body[:300]}")


def _cached(body: Any) -> float:
    return float(body["scores"]["churn"]) if body["source"] == "cache" else float("nan")


def _online(body: Any) -> float:
    return float(body["scores"]["churn"]) if body["source"] == "online" else float("nan")


def _posted(body: Any) -> float:
    return _online(body["results"][0])


def _plain(body: Any) -> float:
    return float(body["churn"])


def _first_plain(body: Any) -> float:
    return _plain(body[0])


def _rates(key: str, mine: Sequence[Load], others: Sequence[Load], note: str = "") -> Finding:
    return _compared(key, [load.rate for load in mine], [load.rate for load in others], note)


def _compared(key: str, mine: Sequence[float], others: Sequence[float], note: str = "") -> Finding:
    return Finding(key=key, value=median(mine), reference=median(others), spread=spread(mine), note=note)
