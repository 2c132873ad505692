"""``forescore schedule`` as a user calls it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.servers import ValkeyProcess, dead_port

import forescore
from shared.bundle import Bundle
from shared.settings import load_settings
from shared.store.connect import open_store

Write = Callable[..., Path]


class Command:
    """Calls ``forescore schedule`` and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: object) -> int:
        code = forescore.run(["schedule", *map(str, arguments)])
        printed = self._capsys.readouterr()
        self.out, self.err = printed.out, printed.err
        return code

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    valkey: ValkeyProcess,
    namespace: str,
) -> Command:
    """The command with a home and a corner of a real store of its own."""
    monkeypatch.setenv("FORESCORE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FORESCORE_REDIS__URL", valkey.url)
    monkeypatch.setenv("FORESCORE_REDIS__NAMESPACE", namespace)
    return Command(capsys)


def test_show_tells_the_settings_in_effect(command: Command, bundle: Bundle, write: Write) -> None:
    """J2: what apscheduler's job has, the last night, whether it would catch up, five runs in both time zones."""
    given = ("--show", "--json", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin")
    assert command(bundle.path, write(), *given) == 0
    shown = command.json()
    assert shown["model"] == "purchase"
    assert shown["settings"]["cron"] == "30 2 * * *"
    job = shown["job"]
    assert job.pop("next_fire") == shown["next"][0]["utc"]
    assert job == {
        "trigger": "30 2 * * * (Europe/Berlin)",
        "coalesce": True,
        "max_instances": 1,
        "misfire_grace_seconds": 14_400,
        "jitter_seconds": None,
    }
    assert (shown["night"], shown["would_catch_up"], shown["active"]) == ("open", True, None)
    assert len(shown["next"]) == 5
    for fire in shown["next"]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT0[23]:30:00\+0[12]:00", fire["local"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT0[01]:30:00Z", fire["utc"])
    assert shown["last_due"] < shown["now"] < shown["next"][0]["utc"]


def test_show_is_for_people_too(command: Command, bundle: Bundle, write: Write) -> None:
    """Label and text in two columns, and nothing was run."""
    assert command(bundle.path, write(), "--show") == 0
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in command.out.splitlines())
    assert lines["job.misfire_grace_seconds"] == "14400"
    assert lines["would_catch_up"] == "true"
    assert command.out.count("\nnext ") == 5
    with open_store(load_settings(), "purchase") as store:
        assert store.catalogue.snapshots() == []


def test_show_without_a_store(command: Command, bundle: Bundle, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is shown, and why the store is not."""
    monkeypatch.setenv("FORESCORE_REDIS__URL", f"redis://127.0.0.1:{dead_port()}")
    assert command(bundle.path, write(), "--show", "--json") == 0
    shown = command.json()
    assert "cannot be reached" in shown["store"]
    assert shown["would_catch_up"] is None
    assert len(shown["next"]) == 5


def test_once_is_one_run_now(command: Command, bundle: Bundle, write: Write) -> None:
    """Scored, published, promoted and told as a backfill does; then --show has nothing to catch up with."""
    assert command(bundle.path, write(), "--once") == 0
    assert re.search(r"^state +promoted$", command.out, re.MULTILINE)
    assert command(bundle.path, write(), "--show", "--json") == 0
    shown = command.json()
    assert (shown["night"], shown["would_catch_up"], shown["lease"]) == ("done", False, None)
    assert shown["active"].startswith("1-")


def test_once_for_a_night_that_is_done(command: Command, bundle: Bundle, write: Write) -> None:
    """What the schedule starts does nothing, and says so, where somebody else was quicker."""
    table = write()
    assert command(bundle.path, table, "--once", "--json") == 0
    first = command.json()
    assert first["outcome"] == "done"
    assert command(bundle.path, table, "--once", "--json", "--night", "2026-01-01T02:00:00+00:00") == 0
    assert command.json() == {"event": "finished", "outcome": "skipped", "snapshot": first["snapshot"]}
    assert command(bundle.path, table, "--once", "--night", "2026-01-01T02:00:00+00:00") == 0
    assert command.out == f"nothing to do: snapshot {first['snapshot']} was scored since the run was due\n"


def test_once_held_back_by_a_gate(command: Command, bundle: Bundle, write: Write) -> None:
    """Exit code 3 as of a backfill, the outcome in the line, and the run told of in words."""
    assert command(bundle.path, write(), "--once") == 0
    few = {name: [1] for name in ("customer_id", "visits", "returns", "basket")}
    assert command(bundle.path, write(**few), "--once", "--json") == 3
    found = command.json()
    assert (found["outcome"], found["state"]) == ("held", "held")
    assert "coverage" in found["reason"]
    assert command(bundle.path, write(**few), "--once") == 3
    assert re.search(r"^state +held: coverage", command.out, re.MULTILINE)


def test_once_while_somebody_else_is_at_work(command: Command, bundle: Bundle, write: Write) -> None:
    """Exit code 1, and the holder."""
    with open_store(load_settings(), "purchase") as store:
        lease = store.leases.acquire("ann@host 7 run 1a2b3c", 60)
        assert command(bundle.path, write(), "--once", "--json") == 1
        store.leases.release(lease)
    found = command.json()
    assert found["outcome"] == "busy"
    assert "ann@host 7 run 1a2b3c" in found["reason"]
    assert command.err.startswith("forescore: the lease is held by ann@host 7 run 1a2b3c")


def test_once_that_fails(command: Command, bundle: Bundle, write: Write) -> None:
    """Exit code 1 with the reason; nothing is published."""
    assert command(bundle.path, write(visits=[None] * 4), "--once", "--json") == 1
    found = command.json()
    assert found["outcome"] == "failed"
    assert "--max-rejected" in found["reason"]


def test_bundle_and_table_from_settings(
    command: Command, bundle: Bundle, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without arguments, the settings say what is scored."""
    monkeypatch.setenv("FORESCORE_BUNDLE", str(bundle.path))
    monkeypatch.setenv("FORESCORE_SCHEDULE__TABLE", str(write()))
    assert command("--show") == 0


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((), "name a bundle and a table"),
        (("nowhere", "t.parquet"), "there is no such directory"),
        (("{bundle}", "t.parquet", "--cron", "never"), "FORESCORE_SCHEDULE__CRON"),
        (("{bundle}", "t.parquet", "--timezone", "Nowhere"), "FORESCORE_SCHEDULE__TIMEZONE"),
    ],
)
def test_a_mistake_in_the_call(command: Command, bundle: Bundle, arguments: tuple[str, ...], rule: str) -> None:
    """Exit code 2 and one line, before anything is begun."""
    words = [word.format(bundle=bundle.path) for word in arguments]
    for how in ([], ["--show"], ["--once"]):
        assert command(*words, *how) == 2
        assert rule in command.err
        assert command.err.count("\n") == 1
