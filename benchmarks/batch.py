"""The batch job: scoring a table, and publishing what was scored."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from redis import Redis

from benchmarks.bench import Bench
from benchmarks.children import ask
from benchmarks.errors import Broken
from benchmarks.results import Finding
from benchmarks.rounds import interleaved, median, spread


def score(bench: Bench) -> Iterator[Finding]:
    """The big table to parts, beside the lesson's loop and each stage alone; all per row."""
    store = bench.new_store()

    def product(_: int) -> float:
        found = ask("benchmarks.work.score", str(bench.bundle), str(bench.big), str(bench.new("score")))
        _require(found["rows"], bench.sizes.big_rows, "scored")
        return float(found["rows"] / found["seconds"])

    def lesson(_: int) -> float:
        found = _lesson(bench, store)
        return float(found["rows"] / found["score"])

    stages: list[dict[str, float]] = []

    def slowest(_: int) -> float:
        found = ask("benchmarks.work.stages", str(bench.bundle), str(bench.big), str(bench.new("stages")))
        stages.append({name: found["rows"] / seconds for name, seconds in found["seconds"].items()})
        return float(min(stages[-1].values()))

    rates = interleaved(bench.sizes.batch_rounds, {"product": product, "lesson": lesson, "slowest": slowest})
    value, apart = median(rates["product"]), spread(rates["product"])
    told = ", ".join(f"{name} {median([each[name] for each in stages]):,.0f}" for name in stages[0])
    yield Finding(key="score-lesson", value=value, reference=median(rates["lesson"]), spread=apart)
    yield Finding(
        key="score-stage",
        value=value,
        reference=median(rates["slowest"]),
        spread=apart,
        note=f"rows/s of each stage alone: {told}",
    )


def publish(bench: Bench) -> Iterator[Finding]:
    """The big table's scores into an empty store, verified and promoted, beside a pipeline and prepared bytes."""
    store = bench.new_store()

    def product(_: int) -> float:
        return publish_into(bench, store)

    def pipeline(_: int) -> float:
        _empty(store)
        found = _lesson(bench, store)
        return float(found["rows"] / found["publish"])

    def prepared(_: int) -> float:
        _empty(store)
        address = urlsplit(store)
        arguments = (str(bench.big_run), str(address.hostname), str(address.port))
        found = ask("benchmarks.references.prepared", *arguments)
        return float(found["entities"] / found["seconds"])

    rates = interleaved(bench.sizes.batch_rounds, {"product": product, "pipeline": pipeline, "prepared": prepared})
    value, apart = median(rates["product"]), spread(rates["product"])
    for name in ("pipeline", "prepared"):
        yield Finding(key=f"publish-{name}", value=value, reference=median(rates[name]), spread=apart)


def publish_into(bench: Bench, store: str) -> float:
    """Publishes the big table's run into the store, which is emptied before; entities a second."""
    _empty(store)
    found = ask("benchmarks.work.publish", str(bench.big_run), **bench.settings(store))
    _require(found["entities"], bench.sizes.big_rows, "published")
    return float(found["entities"] / found["seconds"])


def _lesson(bench: Bench, store: str) -> dict[str, Any]:
    rows, out = str(bench.sizes.reference_rows), str(bench.folder / "lesson.parquet")
    return ask("benchmarks.references.lesson", str(bench.bundle), str(bench.big), rows, out, store)


def _empty(store: str) -> None:
    with Redis.from_url(store) as client:
        client.flushall()


def _require(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise Broken(f"{found} of {expected} customers were {what}")
