"""Backfills as processes of their own that start within milliseconds, and that are struck at a step: see the script."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from support.servers import wait_until

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("forked_backfills.py")


@dataclass(frozen=True, kw_only=True)
class Order:
    """One backfill. At the step ``at``, a number or a name, it is killed, stopped (SIGSTOP), or waits for ``go_on``."""

    bundle: str
    table: str
    out: str
    folder: str
    """Where it writes its steps, its errors, and that it is at its step."""
    home: str
    url: str
    namespace: str
    at: int | str | None = None
    how: Literal["kill", "stop", "wait"] = "kill"
    files: bool = False
    """Whether events of files are its steps, in place of those of the run."""
    where: str | None = None
    into: str | None = None
    wait: bool = False
    lease_seconds: float = 30
    chunk_size: int = 2
    min_coverage: float = 0.9
    clock_shift: float = 0
    """By how many seconds its clock is wrong."""
    file_bytes: int | None = None
    """The longest file that it may write."""


@dataclass(frozen=True)
class Backfill:
    """One that was started."""

    server: "BackfillServer"
    folder: Path
    pid: int

    def is_there(self) -> bool:
        """Whether it came to the step at which it stops or waits."""
        return (self.folder / "there").exists()

    def go_on(self) -> None:
        """Lets one that waits go on, once it has come to its step."""
        with (self.folder / "go").open("wb"):
            pass

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def code(self) -> int:
        """Its exit code, once it has ended; negative for a signal."""
        code = int(self.server.say({"wait": self.pid}))
        self.server.at_work.discard(self.pid)
        return code

    @property
    def steps(self) -> list[str]:
        return (self.folder / "steps").read_text().splitlines()

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text()


class BackfillServer:
    """The process that starts them; it has the bundles in its memory."""

    def __init__(self, folder: Path, bundles: Iterable[Path]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.at_work: set[int] = set()
        """Those whose end nobody has waited for yet."""
        self.log = (folder / "backfills.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, bundles)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "USER": "tester", "PATH": "/usr/bin:/bin"},
            text=True,
        )

    def start(self, order: Order) -> Backfill:
        """Starts a backfill, and returns at once."""
        folder = Path(order.folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("there", "go"):
            (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / "go")
        for name in ("steps", "errors"):
            (folder / name).write_text("")
        pid = int(self.say({"start": asdict(order)}))
        self.at_work.add(pid)
        return Backfill(self, folder, pid)

    def start_until(self, order: Order) -> Backfill:
        """Starts one, and returns when it is at its step."""
        started = self.start(order)
        wait_until(started.is_there, 60)
        return started

    def say(self, words: dict[str, Any]) -> str:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps(words), file=stdin, flush=True)
        return stdout.readline()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for pid in self.at_work:  # one that was stopped would be there for ever
            os.kill(pid, signal.SIGKILL)
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.log.close()
