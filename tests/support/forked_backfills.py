"""A process that backfills as the command does, each time in a fork of its own, which is struck at a step on the way.

It reads one JSON object a line: ``{"start": order}`` is answered with the process's id, ``{"wait": id}`` with its exit
code. Forking saves the seconds that importing torch takes; each fork is a process of its own, and dies alone. What an
order has is said by ``support.backfills.Order``.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from batch_job.backfill import perform
from batch_job.gates import RejectionLimit
from batch_job.into import Into
from batch_job.job import Means, open_job
from batch_job.priority import give_way
from batch_job.progress import Silent
from batch_job.source import Selection
from shared.bundle import load_bundle
from shared.errors import ForescoreError
from shared.scorer import Scorer, open_scorer
from shared.settings import BatchSettings, GateSettings, RedisSettings, Settings

FILE_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "shutil.rmtree", "os.truncate"}


class Striker(Silent):
    """Writes the steps down, and strikes its own process at the one that was asked for, by number or by name."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._folder = Path(order["folder"])
        self._report = (self._folder / "steps").open("a")
        self._at = order["at"]
        self._how = order["how"]
        self._files = order["files"]
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
            if self._at not in (self._count, name):
                return
            self._at = None
            self._strike()

    def _strike(self) -> None:
        if self._how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        (self._folder / "there").touch()
        if self._how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._how == "wait":
            (self._folder / "go").read_bytes()  # a pipe: opened, and ended, by who lets it go on


class _Shifted:
    """A wall clock that is wrong by so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return time.time() + self._seconds


def work(order: dict[str, Any], scorers: dict[str, Scorer]) -> None:
    """One backfill."""
    striker = Striker(order)
    sys.addaudithook(striker.audit)
    scorer = scorers[order["bundle"]]
    give_way(BatchSettings().nice)
    redis = RedisSettings(url=order["url"], namespace=order["namespace"])
    gates = GateSettings(lease_seconds=order["lease_seconds"], max_psi=100, min_coverage=order["min_coverage"])
    means = Means(
        settings=Settings(home=Path(order["home"]), redis=redis, gates=gates),
        observer=striker,
        clock=_Shifted(order["clock_shift"]),
        open_scores=lambda: scorer,
    )
    selection = Selection(where=order["where"])
    job = open_job(order["table"], bundle=scorer.bundle, chunk_size=order["chunk_size"], selection=selection)
    into = None if order["into"] is None else Into(order["into"])
    if order["file_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_bytes"], resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    perform(job, Path(order["out"]), means, RejectionLimit("50%"), into=into, wait=order["wait"])


def start(order: dict[str, Any], scorers: dict[str, Scorer]) -> int:
    child = os.fork()
    if child:
        return child
    with Path(order["folder"], "errors").open("w") as errors:
        os.dup2(errors.fileno(), 2)
    try:
        work(order, scorers)
    except ForescoreError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(error.exit_code)
    os._exit(0)


def main() -> None:
    torch.set_num_threads(1)  # a fork inherits no threads, so there must be none to miss
    scorers = {path: open_scorer(load_bundle(Path(path)), device="cpu", threads=1) for path in sys.argv[1:]}
    for line in sys.stdin:
        said = json.loads(line)
        if "start" in said:
            answer = start(said["start"], scorers)
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(said["wait"], 0)[1])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
