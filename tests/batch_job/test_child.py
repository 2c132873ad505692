"""A run in a process of its own, however it behaves."""

import os
import sys
from pathlib import Path
from threading import Thread

import pytest
from support.schedule import World, utc
from support.servers import wait_until

from batch_job.child import Child
from batch_job.outcome import Outcome
from shared.clock import MonotonicClock

DEAF = "import pathlib, signal, subprocess, sys, threading\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
HANGS = "threading.Event().wait()\n"


def child(deadline: float = 60, stop_seconds: float = 60) -> Child:
    return Child(deadline=deadline, stop_seconds=stop_seconds, stopwatch=MonotonicClock())


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def alive(pid: int) -> bool:
    """Whether the process is there, and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        ('print("words"); print(\'{"outcome": "done", "snapshot": "1-A"}\')', "done", None),
        ('print(\'{"outcome": "skipped"}\')', "skipped", None),
        ("pass", "done", None),
        ('print(\'{"outcome": "held", "reason": "coverage"}\'); raise SystemExit(3)', "held", "coverage"),
        ('print(\'{"outcome": "busy", "reason": "held by x"}\'); raise SystemExit(1)', "busy", "held by x"),
        ('print(\'{"outcome": "failed", "reason": "why"}\'); raise SystemExit(1)', "failed", "why"),
        ('print(\'{"outcome": "done"}\'); raise SystemExit(1)', "failed", "it ended with 1"),
        ("raise SystemExit(2)", "failed", "it ended with 2"),
        ('print("[1]"); raise SystemExit(1)', "failed", "it ended with 1"),
        ("import os; os.abort()", "failed", "it was killed by signal 6"),
    ],
)
def test_the_outcome_is_the_exit_code_and_the_last_line(code: str, kind: str, reason: str | None) -> None:
    """The exit code decides what a broken or missing line cannot."""
    found = child().run(python(code))
    assert (found.kind, found.reason) == (kind, reason)


def test_what_the_run_reports_is_passed_on() -> None:
    """The report of the last line comes with the outcome."""
    assert child().run(python('print(\'{"snapshot": "1-A"}\')')).report == {"snapshot": "1-A"}


def test_a_run_that_hangs_is_ended_at_its_deadline(tmp_path: Path) -> None:
    """Also one that hears no SIGTERM, and all that it started: nothing of it is left, and the next run begins."""
    code = DEAF + (
        "inner = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(inner.pid))\n" + HANGS
    )
    runs = child(deadline=1.5, stop_seconds=0.1)
    found = runs.run(python(code, tmp_path / "pid"))
    assert found.kind == "timed_out"
    assert found.reason is not None
    assert "RUN_DEADLINE" in found.reason
    inner = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(inner))
    assert runs.run(python("pass")).kind == "done"


def test_a_run_that_hangs_is_ended_and_the_night_has_its_good_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended at the deadline, a minute's pause by the test's clock, then one that is good: the schedule lives on."""
    host = World(monkeypatch, "2026-11-29 20:00")
    host.publish()
    runs = child(deadline=1.0, stop_seconds=0.1)
    good = python('print(\'{"outcome": "done"}\')')

    def run_well() -> Outcome:
        host.publish()
        return child().run(good)

    host.plan.extend([lambda: runs.run(python(DEAF + HANGS)), run_well])
    host.live("2026-11-30 02:00")
    host.close()
    assert host.runs == [utc("2026-11-30 02:00")] * 2
    assert host.pauses == [60]
    sample = host.health.metrics.registry.get_sample_value
    assert sample("forescore_schedule_runs_total", {"outcome": "timed_out"}) == 1
    assert sample("forescore_schedule_runs_total", {"outcome": "done"}) == 1


@pytest.mark.parametrize("deaf", [False, True])
def test_stop_ends_the_run_that_is_at_work(tmp_path: Path, *, deaf: bool) -> None:
    """In good order, or by force where it hears nothing; none is begun any more."""
    code = (DEAF if deaf else "import pathlib, sys, threading\n") + "pathlib.Path(sys.argv[1]).touch()\n" + HANGS
    runs = child(stop_seconds=0.1 if deaf else 60)
    found: list[Outcome] = []
    thread = Thread(target=lambda: found.append(runs.run(python(code, tmp_path / "there"))))
    thread.start()
    wait_until((tmp_path / "there").exists, 60)
    runs.stop()
    thread.join()
    assert found[0].kind == "stopped"
    assert runs.run(python("pass")).kind == "stopped"


def test_the_run_is_in_a_session_of_its_own() -> None:
    """Ctrl-C on the schedule's terminal does not reach the run."""
    found = child().run(python("import json, os; print(json.dumps({'session': os.getsid(0)}))"))
    assert found.report["session"] != os.getsid(0)
