"""Processes that do one thing and end: what they found, how long they took, how much memory."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.errors import Broken
from benchmarks.places import ROOT

_SAMPLE_SECONDS = 0.02
_MIB = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a command said, and how long it took."""

    seconds: float
    output: str


def environment(**settings: str) -> dict[str, str]:
    """This process's, without its settings of Forescore: the bench measures the defaults, and what it sets itself."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("FORESCORE_")}
    return others | settings | {"PYTHONUNBUFFERED": "1"}


def forescore(*arguments: str) -> list[str]:
    """The command of this environment, whether it is activated or not."""
    return [str(Path(sys.executable).with_name("forescore")), *arguments]


def run(command: Sequence[str], **settings: str) -> Ended:
    """Runs a command to its end. Broken if it fails."""
    started = time.perf_counter()
    with _running(command, settings) as process:
        output = _finished(process, command)
    return Ended(seconds=time.perf_counter() - started, output=output)


def peak_mib(command: Sequence[str], **settings: str) -> float:
    """The most memory that the command and its children had together, as far as could be seen. Broken if it fails.

    To look costs time: nothing else is measured of a command that is looked at.
    """
    with _running(command, settings) as process, _watched(process.pid) as peak:
        _finished(process, command)
    return peak.most / _MIB


def _running(command: Sequence[str], settings: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(command),
        cwd=ROOT,
        env=environment(**settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finished(process: subprocess.Popen[str], command: Sequence[str]) -> str:
    output, errors = process.communicate()
    if process.returncode != 0:
        raise Broken(f"{Path(command[0]).name} {' '.join(command[1:4])} failed: {(errors or output)[-2000:]}")
    return output


def ask(module: str, *arguments: str, **settings: str) -> dict[str, Any]:
    """What a module of the bench says in its last line, which is JSON."""
    ended = run([sys.executable, "-m", module, *arguments], **settings)
    found: dict[str, Any] = json.loads(ended.output.strip().splitlines()[-1])
    return found


def answer(**found: object) -> None:
    """Says what such a module found."""
    print(json.dumps(found))


class _Peak:
    def __init__(self) -> None:
        self.most = 0


@contextmanager
def _watched(pid: int) -> Iterator[_Peak]:
    """Looks at the process and all below it until the end of the block."""
    peak, ended = _Peak(), threading.Event()

    def watch() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            peak.most = max(peak.most, sum(map(_high_water, _family(pid))))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def _family(pid: int) -> list[int]:
    """The process and all below it; empty once it ended, and on systems without /proc."""
    found = [pid]
    for parent in found:
        with suppress(OSError):  # it ended while it was looked at
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, _text(task).split())
    return found


def _high_water(pid: int) -> int:
    """The most bytes that the process ever had in memory, by the kernel's count: no peak is missed."""
    status = _text(Path(f"/proc/{pid}/status"))
    kibibytes = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), "0")
    return int(kibibytes) * 1024


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
