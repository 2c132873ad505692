"""F2: a store that may drop scores is told of when a command of the batch job starts, and is no reason to stop."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command import Command
from support.commands import CommandProcess
from support.servers import ValkeyProcess, start_valkey, wait_until

from shared.bundle import Bundle

Write = Callable[..., Path]


@pytest.fixture
def evicting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Iterator[ValkeyProcess]:
    """A server that drops what it likes when it is full, and the commands' store."""
    with start_valkey(tmp_path, "--maxmemory-policy", "allkeys-lru") as server:
        monkeypatch.setenv("FORESCORE_REDIS__URL", server.url)
        yield server


def warnings(errors: str) -> list[dict[str, str]]:
    """The lines of the log that warn of the store."""
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    return [line for line in lines if line["level"] == "warning" and line["event"] == "store is not set up well"]


@pytest.mark.usefixtures("evicting")
@pytest.mark.parametrize("arguments", [("backfill",), ("schedule", "--once")])
def test_a_command_warns_once_of_a_store_that_evicts(
    command: Command, bundle: Bundle, write: Write, arguments: tuple[str, ...]
) -> None:
    """One line with what was found and what to do; the run goes on and is promoted."""
    name, *options = arguments
    assert command(name, bundle.path, write(), *options) == 0
    assert command.told("state") == "promoted"
    [line] = warnings(command.err)
    assert "maxmemory-policy allkeys-lru" in line["found"]
    assert "CONFIG SET maxmemory-policy noeviction" in line["next_step"]


def test_a_store_that_is_set_up_well_is_no_news(command: Command, bundle: Bundle, write: Write) -> None:
    """Nothing warns where nothing is wrong."""
    assert command("backfill", bundle.path, write()) == 0
    assert warnings(command.err) == []


@pytest.mark.usefixtures("evicting")
def test_a_run_that_the_schedule_starts_leaves_the_warning_to_it(
    command: Command, bundle: Bundle, write: Write
) -> None:
    """A schedule says it once, when it starts, and not each night."""
    assert command("schedule", bundle.path, write(), "--once", "--json", "--night", "2026-01-01T02:00:00+00:00") == 0
    assert warnings(command.err) == []


def test_the_schedule_warns_once(evicting: ValkeyProcess, bundle: Bundle, write: Write, tmp_path: Path) -> None:
    """When it starts, whether or not a run is due."""
    environment = {
        "FORESCORE_REDIS__URL": evicting.url,
        "FORESCORE_HOME": str(tmp_path / "home"),
        "FORESCORE_SCHEDULE__CATCH_UP": "false",
        "FORESCORE_SCHEDULE__PORT": "0",
    }
    schedule = CommandProcess(tmp_path / "schedule", environment, ["schedule", str(bundle.path), str(write())])
    try:
        wait_until(lambda: bool(warnings(schedule.errors)), 120)
        assert schedule.end() == 0
    finally:
        schedule.kill()
    [line] = warnings(schedule.errors)
    assert "allkeys-lru" in line["found"]
