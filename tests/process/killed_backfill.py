"""A process that backfills as the command does, and is killed on the way: by SIGKILL, at the n-th step or file event.

It reads one JSON object a line, forks a process for each, and answers with what became of that process and the steps
that it made. Forking saves the seconds that importing torch takes; each fork is a process of its own, and dies alone.
"""

import json
import os
import signal
import sys
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from batch_job.backfill import perform
from batch_job.gates import RejectionLimit
from batch_job.into import Into
from batch_job.job import Means, open_job
from batch_job.progress import Silent
from batch_job.source import Selection
from shared.bundle import load_bundle
from shared.errors import ForescoreError
from shared.scorer import Scorer, open_scorer
from shared.settings import GateSettings, RedisSettings, Settings

FILE_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "shutil.rmtree", "os.truncate"}


class Killer(Silent):
    """Writes the steps down, and kills its process at the one that was asked for."""

    def __init__(self, report: Path, at: int | None, *, files: bool) -> None:
        self._report = report.open("a")
        self._at = at
        self._files = files
        self._count = 0
        self._lock = Lock()

    def step(self, name: str) -> None:
        if not self._files:
            self._reached(name)

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by the interpreter for each event of its own."""
        if self._files and event in FILE_EVENTS and args and "/runs/" in str(args[0]):
            self._reached(f"{event} {Path(str(args[0])).name}")

    def _reached(self, name: str) -> None:
        with self._lock:
            self._count += 1
            self._report.write(f"{name}\n")
            self._report.flush()
            if self._count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)


def work(order: dict[str, Any], scorers: dict[str, Scorer]) -> None:
    """One backfill."""
    killer = Killer(Path(order["report"]), order["at"], files=order["files"])
    sys.addaudithook(killer.audit)
    scorer = scorers[order["bundle"]]
    redis = RedisSettings(url=order["url"], namespace=order["namespace"])
    gates = GateSettings(lease_seconds=1, max_psi=100)
    means = Means(
        settings=Settings(home=Path(order["out"]), redis=redis, gates=gates),
        observer=killer,
        open_scores=lambda: scorer,
    )
    selection = Selection(where=order["where"])
    job = open_job(order["table"], bundle=scorer.bundle, chunk_size=2, selection=selection)
    into = None if order["into"] is None else Into(order["into"])
    perform(job, Path(order["out"]), means, RejectionLimit("50%"), into=into)


def main() -> None:
    torch.set_num_threads(1)  # a fork inherits no threads, so there must be none to miss
    scorers = {path: open_scorer(load_bundle(Path(path)), device="cpu", threads=1) for path in sys.argv[1:]}
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(json.loads(line), scorers)
            except ForescoreError as error:
                sys.stderr.write(f"{error}\n")
                sys.stderr.flush()
                os._exit(error.exit_code)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
