"""What must hold. Each bar is one row of the table; a measurement gives the finding with its key."""

from dataclasses import dataclass
from typing import Literal

Judged = Literal["ratio", "value"]
Sign = Literal["at least", "at most"]

LESSON = "lesson's loop"
NAIVE_TORCH = "FastAPI + torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """``judged``: the ratio of value to reference, or the value itself."""

    key: str
    group: str
    what: str
    unit: str
    reference: str = ""
    judged: Judged = "ratio"
    sign: Sign = "at least"
    limit: float

    def holds(self, value: float, reference: float | None) -> bool:
        """Whether a finding reaches the bar."""
        found = value if self.judged == "value" else ratio(value, reference)
        if found is None:
            return False
        return found >= self.limit if self.sign == "at least" else found <= self.limit

    @property
    def text(self) -> str:
        """The bar as the table says it."""
        return f"{self.sign} {self.limit:g}" + (f" {self.unit}" if self.judged == "value" else " times")


def ratio(value: float, reference: float | None) -> float | None:
    """How many times the reference the value is."""
    return value / reference if reference else None


def _rate(key: str, what: str, reference: str, limit: float, unit: str = "answers/s") -> Bar:
    return Bar(key=key, group=key.partition("-")[0], what=what, unit=unit, reference=reference, limit=limit)


def _most(key: str, what: str, unit: str, reference: str, limit: float) -> Bar:
    group = key.partition("-")[0]
    return Bar(key=key, group=group, what=what, unit=unit, reference=reference, sign="at most", limit=limit)


def _absolute(key: str, what: str, unit: str, limit: float) -> Bar:
    group = key.partition("-")[0]
    return Bar(key=key, group=group, what=what, unit=unit, judged="value", sign="at most", limit=limit)


BARS = (
    _rate("hit-naive", "GET hit, 32 connections", "FastAPI + redis-py", 7),
    _rate("hit-constant", "GET hit, 32 connections", "bare uvicorn, a constant", 0.7),
    _most("hit-p99", "GET hit, 32 connections, p99", "ms", "bare uvicorn, a constant", 2),
    _rate("miss-naive", "GET miss: look-up, features, score, write back", NAIVE_TORCH, 2.5),
    _rate("post-naive", "POST of one row's features, 32 connections", NAIVE_TORCH, 3),
    _rate("post-litserve", "POST of one row's features, 32 connections", "LitServe", 8),
    _rate("post-bentoml", "POST of one row's features, 32 connections", "BentoML", 8),
    _absolute("row-time", "One row through encode and graph, in process", "us", 100),
    _most("row-graph", "One row through encode and graph, in process", "us", "the graph call alone", 1.3),
    _rate("score-lesson", "Score a table, Parquet to verified parts", LESSON, 10, "rows/s"),
    _rate("score-stage", "Score a table, Parquet to verified parts", "slowest stage alone", 0.5, "rows/s"),
    _rate("publish-pipeline", "Publish the scores", "redis-py pipeline SET", 10, "entities/s"),
    _rate("publish-prepared", "Publish the scores", "prepared bytes", 0.6, "entities/s"),
    _absolute("memory-store", "Memory of the store for one entity", "bytes", 30),
    _most("memory-peak", "Peak memory of the backfill, big table", "MiB", "small table", 1.3),
    _absolute("bits-export", "Scores that differ, cached against online: export", "rows", 0),
    _absolute("bits-compiled", "Scores that differ, cached against online: compiled", "rows", 0),
    _absolute("start-help", "forescore --help", "s", 0.5),
    _absolute("start-serve", "forescore serve until it is ready, warm", "s", 5),
    _most("start-get", "The first cached answer", "ms", "the hundredth", 2),
    _most("start-post", "The first answer that is scored online", "ms", "the hundredth", 2),
)
GROUPS = tuple(dict.fromkeys(bar.group for bar in BARS))
