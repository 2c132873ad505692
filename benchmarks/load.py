"""Load: wrk where there is one and requests may repeat, else the project's own client."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.caller import Plan
from benchmarks.children import environment
from benchmarks.errors import Broken
from benchmarks.places import ROOT

_SCRIPT = Path(__file__).with_name("load.lua")
_WRK = re.compile(r"^bench (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One round's answers. ``samples``: the line of the book that was asked for, and the body that came."""

    rate: float
    p50_ms: float
    p99_ms: float
    samples: tuple[tuple[int, str], ...] = ()


def write_book(path: Path, lines: Iterable[str]) -> Path:
    """A book: one request a line."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def tool() -> str:
    """What repeats requests on this machine."""
    return "wrk" if shutil.which("wrk") else "own client"


def repeat(port: int, book: Path, connections: int, seconds: float) -> Load:
    """Goes through the book again and again, by the tool that this machine has."""
    if tool() == "wrk":
        return _by_wrk(port, book, connections, seconds)
    return by_caller(Plan(port=port, book=str(book), connections=connections, seconds=seconds))


def by_caller(plan: Plan) -> Load:
    """Carries out a plan in a process of its own. Broken if one answer is an error."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.caller"],
        input=json.dumps(asdict(plan)),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Broken(f"the client failed: {done.stderr[-1000:]}")
    found = json.loads(done.stdout)
    _require_clean(found["errors"], found["answers"], found["first_error"])
    return Load(
        rate=found["answers"] / found["seconds"],
        p50_ms=found["p50_ms"],
        p99_ms=found["p99_ms"],
        samples=tuple((line, body) for line, body in found["samples"]),
    )


def _by_wrk(port: int, book: Path, connections: int, seconds: float) -> Load:
    command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{max(1, round(seconds))}s"]
    command += ["--script", str(_SCRIPT), f"http://127.0.0.1:{port}", "--", str(book)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = _WRK.search(done.stdout)
    if done.returncode != 0 or line is None:
        raise Broken(f"wrk failed: {(done.stderr or done.stdout)[-1000:]}")
    found = json.loads(line[1])
    told = f"{found['statuses']} with a status above 399, {found['broken']} that did not come"
    _require_clean(found["statuses"] + found["broken"], found["answers"], told)
    return Load(rate=found["answers"] / (found["micros"] / 1e6), p50_ms=found["p50"] / 1000, p99_ms=found["p99"] / 1000)


def _require_clean(errors: int, answers: int, first: str) -> None:
    if errors or not answers:
        raise Broken(f"{errors} of {answers} answers are errors: {first}")
