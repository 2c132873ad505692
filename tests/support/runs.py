"""Runs of the batch job in tests, and what they left behind."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from batch_job.job import Means, open_job
from batch_job.manifest import RunManifest
from batch_job.parts import PartInfo
from batch_job.progress import Silent
from batch_job.run import run_job
from shared.bundle import Bundle

Write = Callable[..., Path]
Row = dict[str, object]


def rows(out: Path) -> list[Row]:
    """All rows of all parts, in order."""
    return [row for path in sorted((out / "parts").iterdir()) for row in pq.read_table(path).to_pylist()]


def part_bytes(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((out / "parts").iterdir())}


def fates(out: Path) -> list[tuple[object, ...]]:
    """Id and score (4 digits), or id, code and field."""
    return [
        (row["entity_id"], round(float(str(row["buys"])), 4))
        if row["status"] == "scored"
        else (row["entity_id"], row["code"], row["field"])
        for row in rows(out)
    ]


def run(path: Path, out: Path, bundle: Bundle, means: Means, **options: object) -> RunManifest:
    given = {"chunk_size": 2, **options}
    run_options = {name: given.pop(name) for name in ("allowed", "force") if name in given}
    return run_job(open_job(path, bundle=bundle, **given), out, means, **run_options)  # type: ignore[arg-type]


class Watch(Silent):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.resumed: list[bool] = []

    def chunk_done(self, part: PartInfo, *, resumed: bool) -> None:
        self.resumed.append(resumed)

    def step(self, name: str) -> None:
        self.steps.append(name)
