"""What goes on beside the clients: promotions, and a look at the memory of the service."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from drills.soak.book import write_truth
from drills.stage import ROOT, Stage

SAMPLE_SECONDS = 0.5
_MIB = 1024**2


@dataclass
class Watch:
    """``memory``: seconds since the start and MiB, again and again. ``promoted``: how many snapshots became active, and
    ``spans``, from when to when by the clock that callers go by."""

    memory: list[tuple[float, float]] = field(default_factory=list)
    promoted: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def slope(self) -> float:
        """MiB a minute over the second half, by least squares."""
        half = self.memory[len(self.memory) // 2 :]
        count = len(half)
        mean_time, mean_size = (sum(column) / count for column in zip(*half, strict=True))
        spread = sum((moment - mean_time) ** 2 for moment, _ in half)
        together = sum((moment - mean_time) * (size - mean_size) for moment, size in half)
        return together / spread * 60 if spread else 0.0


@contextmanager
def watching(stage: Stage, truth: Path, *, every: float) -> Iterator[Watch]:
    """For as long as the block runs, a new snapshot is promoted every so many seconds, first after half of them, and
    memory is looked at."""
    watch, over = Watch(), threading.Event()
    threads = [
        threading.Thread(target=_sample, args=(stage, watch, over)),
        threading.Thread(target=_promote, args=(stage, truth, watch, over, every)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield watch
    finally:
        over.set()
        for thread in threads:
            thread.join(120)


def call(stage: Stage, book: Path, truth: Path, phases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lets the clients carry out phases, in a process of their own; what they found in each."""
    port = int(stage.url.rpartition(":")[2])
    plan = {"port": port, "book": str(book), "truth": str(truth), "phases": list(phases)}
    done = subprocess.run(
        [sys.executable, "-m", "drills.soak.caller"],
        input=json.dumps(plan),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-1000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def resident_mib(pid: int) -> float:
    """How much memory a process has just now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


def _sample(stage: Stage, watch: Watch, over: threading.Event) -> None:
    started = time.monotonic()
    while not over.wait(SAMPLE_SECONDS):
        watch.memory.append((time.monotonic() - started, resident_mib(stage.server.process.pid)))


def _promote(stage: Stage, truth: Path, watch: Watch, over: threading.Event, every: float) -> None:
    started = time.perf_counter()
    for turn in count():
        due = started + every * (turn + 0.5)  # by the clock, so that each third of the time has as many
        if over.wait(max(0.0, due - time.perf_counter())):
            return
        began = time.perf_counter()
        run = stage.new_run()
        backfill = run.start(at="ready", how="wait")
        run.note()
        write_truth(truth, stage.world)  # before any answer can name it
        backfill.go_on()
        if backfill.code() == 0:
            watch.promoted += 1
        else:
            watch.failed.append(backfill.errors[:200])
        watch.spans.append((began, time.perf_counter()))
