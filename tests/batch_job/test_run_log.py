"""The one log line in which a run ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.command import Command
from support.servers import dead_port

from shared.bundle import Bundle

Write = Callable[..., Path]


def _lines(command: Command) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.err.splitlines() if line.startswith("{")]


def test_a_run_ends_in_one_line(command: Command, bundle: Bundle, write: Write) -> None:
    """Key, model, snapshot, counts, seconds and state: as JSON on standard error, where no terminal is."""
    assert command("backfill", bundle.path, write(visits=[1, None, 2, 1]), "--max-rejected", 1, "--json") == 0
    report = command.json()

    (line,) = _lines(command)
    assert line.pop("time")
    assert 0 < line.pop("seconds") < 120
    assert line == {
        "event": "run ended",
        "level": "info",
        "state": "promoted",
        "run_key": report["run_key"],
        "model": "purchase",
        "model_version": "1",
        "snapshot": report["snapshot"],
        "input": 4,
        "scored": 3,
        "rejected": 1,
        "duplicate": 0,
    }


def test_a_run_that_fails_has_its_line(command: Command, bundle: Bundle, write: Write) -> None:
    """With the error and its reason."""
    assert command("backfill", bundle.path, write(visits=[None] * 4)) == 1

    (line,) = _lines(command)
    assert (line["level"], line["state"], line["error"]) == ("error", "failed", "TooManyRejected")
    assert "--max-rejected" in line["reason"]


def test_a_run_that_is_held_has_its_line(command: Command, bundle: Bundle, write: Write) -> None:
    """The state says so, and the reason names the gate."""
    path = write()
    assert command("backfill", bundle.path, path) == 0
    assert command("backfill", bundle.path, path, "--limit", 2, "--into", "alone") == 3

    (line,) = _lines(command)
    assert (line["level"], line["state"], line["error"], line["scored"]) == ("error", "held", "SnapshotHeld", 2)
    assert "coverage" in line["reason"]


def test_what_was_no_run_has_no_line(
    command: Command, bundle: Bundle, write: Write, monkeypatch: Any, tmp_path: Path
) -> None:
    """Done before, or refused before it began."""
    path = write()
    assert command("backfill", bundle.path, path) == 0
    assert command("backfill", bundle.path, path) == 0
    assert _lines(command) == []
    monkeypatch.setenv("FORESCORE_REDIS__URL", f"redis://127.0.0.1:{dead_port()}")
    assert command("backfill", bundle.path, path, "--limit", 3, "--out", tmp_path / "other") == 1
    assert _lines(command) == []


def test_a_nights_run_has_its_line_once(command: Command, bundle: Bundle, write: Write) -> None:
    """By hand it tells of itself; the schedule tells of the runs that it starts, and so those do not."""
    table = write()
    night = ("--night", "2099-01-01T02:00:00+00:00")
    assert command("schedule", bundle.path, table, "--once", "--json") == 0
    (line,) = _lines(command)
    assert (line["event"], line["state"], line["scored"]) == ("run ended", "promoted", 4)
    assert command("schedule", bundle.path, table, "--once", "--json", *night) == 0
    assert command.json()["outcome"] == "done"
    assert _lines(command) == []
