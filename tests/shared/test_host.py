"""What this machine is."""

import os
import subprocess
import sys

import pytest

from shared.host import cores


def test_cores_are_those_that_the_process_may_use() -> None:
    """Not those that the machine has: a container, or who bound the process, may have given it fewer."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.fail("this system has no such call")
    one = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{one}}}); from shared.host import cores; print(cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), cores()) == ("1", len(os.sched_getaffinity(0)))


def test_a_system_without_affinity_has_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS does not tell: all of the machine's are taken."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert cores() == 3
