"""Runs give way to what serves on the same host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOLD = (
    "import os, subprocess, sys; "
    "print(os.getpriority(os.PRIO_PROCESS, 0), getattr(os, 'sched_getscheduler', lambda _: 0)(0))"
)
BATCH = getattr(os, "SCHED_BATCH", 0)
CHILD = f"; subprocess.run([sys.executable, '-c', {TOLD!r}])"
MISSING = {
    "backfill": ["backfill", "no-bundle", "no-table"],
    "night": ["schedule", ".", "no-table", "--once"],
}


def told(program: str, folder: Path, **environment: str) -> list[list[int]]:
    """What a process says of itself, and then its child: the nice value, and the scheduling policy."""
    done = subprocess.run(
        [sys.executable, "-c", program + TOLD + CHILD],
        env={**os.environ, "FORESCORE_HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return [[int(number) for number in line.split()] for line in done.stdout.splitlines()[-2:]]


@pytest.mark.parametrize(
    ("asked", "begins", "ends"), [(10, 0, 10), (10, 15, 15), (0, 0, 0)], ids=["gives way", "is nicer", "does not"]
)
def test_giving_way_is_for_a_process_and_its_children(tmp_path: Path, asked: int, begins: int, ends: int) -> None:
    """It becomes as nice as it is told, unless it is nicer already."""
    program = f"import os; os.nice({begins}); from batch_job.priority import give_way; give_way({asked}); "
    assert told(program, tmp_path) == [[ends, BATCH if asked else 0]] * 2


@pytest.mark.parametrize("command", list(MISSING))
def test_runs_give_way(tmp_path: Path, command: str) -> None:
    """As the setting says, before anything is looked at."""
    program = f"import forescore; forescore.run({MISSING[command]!r}); "
    nice = told(program, tmp_path, FORESCORE_BATCH__NICE="7")[0][0]
    assert nice == 7
