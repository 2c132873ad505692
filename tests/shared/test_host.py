"""What this machine is."""

import os

import pytest

from shared.host import cores


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that the machine has: a container, or who bound the process, may have given it fewer."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5}, raising=False)
    assert cores() == 2


def test_a_system_without_affinity_has_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS does not tell: all of the machine's are taken."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert cores() == 3
