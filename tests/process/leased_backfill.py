"""A process that starts backfills, each in a fork of its own, which stop or wait at a step that was asked for.

It reads one JSON object a line: ``{"start": order}`` is answered with the process's id, ``{"wait": id}`` with its exit
code. Forking saves the seconds that importing torch takes.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from batch_job.backfill import perform
from batch_job.gates import RejectionLimit
from batch_job.job import Means, open_job
from batch_job.progress import Silent
from shared.bundle import load_bundle
from shared.errors import ForescoreError
from shared.scorer import Scorer, open_scorer
from shared.settings import GateSettings, RedisSettings, Settings


class Pausing(Silent):
    """At its step it stops its process (SIGSTOP), or waits until the file ``go`` is there."""

    def __init__(self, at: str | None, folder: Path, *, stop: bool) -> None:
        self._at = at
        self._folder = folder
        self._stop = stop

    def step(self, name: str) -> None:
        if name != self._at:
            return
        self._at = None
        (self._folder / "there").touch()
        if self._stop:
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        while not (self._folder / "go").exists():
            time.sleep(0.01)  # a fork of a script: the file is all that its parent shares with it; the test ends it


def work(order: dict[str, Any], scorers: dict[str, Scorer]) -> None:
    folder = Path(order["folder"])
    scorer = scorers[order["bundle"]]
    redis = RedisSettings(url=order["url"], namespace=order["namespace"])
    gates = GateSettings(lease_seconds=order["lease_seconds"], max_psi=100)
    means = Means(
        settings=Settings(home=Path(order["home"]), redis=redis, gates=gates),
        observer=Pausing(order["at"], folder, stop=order["stop"]),
        open_scores=lambda: scorer,
    )
    job = open_job(order["table"], bundle=scorer.bundle, chunk_size=2)
    perform(job, folder / "run", means, RejectionLimit("50%"), wait=order["wait"])


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
