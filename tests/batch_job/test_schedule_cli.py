"""``forescore schedule`` as a user calls it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command import Command
from support.servers import dead_port

from shared.bundle import Bundle
from shared.settings import load_settings
from shared.store.connect import open_store

Write = Callable[..., Path]


class Scheduling:
    """Calls ``forescore schedule`` and keeps what it printed."""

    def __init__(self, command: Command) -> None:
        self._command = command

    def __call__(self, *arguments: object) -> int:
        return self._command("schedule", *arguments)

    @property
    def out(self) -> str:
        return self._command.out

    @property
    def err(self) -> str:
        return self._command.err

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def schedule(command: Command) -> Scheduling:
    return Scheduling(command)


def test_show_tells_the_settings_in_effect(schedule: Scheduling, bundle: Bundle, write: Write) -> None:
    """J2: what apscheduler's job has, the last night, whether it would catch up, five runs in both time zones."""
    given = ("--show", "--json", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin")
    assert schedule(bundle.path, write(), *given) == 0
    shown = schedule.json()
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


def test_show_is_for_people_too(schedule: Scheduling, bundle: Bundle, write: Write) -> None:
    """Label and text in two columns, and nothing was run."""
    assert schedule(bundle.path, write(), "--show") == 0
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in schedule.out.splitlines())
    assert lines["job.misfire_grace_seconds"] == "14400"
    assert lines["would_catch_up"] == "true"
    assert schedule.out.count("\nnext ") == 5
    with open_store(load_settings(), "purchase") as store:
        assert store.catalogue.snapshots() == []


def test_show_without_a_store(
    schedule: Scheduling, bundle: Bundle, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is shown, and why the store is not."""
    monkeypatch.setenv("FORESCORE_REDIS__URL", f"redis://127.0.0.1:{dead_port()}")
    assert schedule(bundle.path, write(), "--show", "--json") == 0
    shown = schedule.json()
    assert "cannot be reached" in shown["store"]
    assert shown["would_catch_up"] is None
    assert len(shown["next"]) == 5


def test_once_is_one_run_now(schedule: Scheduling, bundle: Bundle, write: Write) -> None:
    """Scored, published, promoted and told as a backfill does; then --show has nothing to catch up with."""
    assert schedule(bundle.path, write(), "--once") == 0
    assert re.search(r"^state +promoted$", schedule.out, re.MULTILINE)
    assert schedule(bundle.path, write(), "--show", "--json") == 0
    shown = schedule.json()
    assert (shown["night"], shown["would_catch_up"], shown["lease"]) == ("done", False, None)
    assert shown["active"].startswith("1-")


def test_once_for_a_night_that_is_done(schedule: Scheduling, bundle: Bundle, write: Write) -> None:
    """What the schedule starts does nothing, and says so, where somebody else was quicker."""
    table = write()
    assert schedule(bundle.path, table, "--once", "--json") == 0
    first = schedule.json()
    assert first["outcome"] == "done"
    assert schedule(bundle.path, table, "--once", "--json", "--night", "2026-01-01T02:00:00+00:00") == 0
    assert schedule.json() == {"event": "finished", "outcome": "skipped", "snapshot": first["snapshot"]}
    assert schedule(bundle.path, table, "--once", "--night", "2026-01-01T02:00:00+00:00") == 0
    assert schedule.out == f"nothing to do: snapshot {first['snapshot']} was scored since the run was due\n"


def test_once_held_back_by_a_gate(schedule: Scheduling, bundle: Bundle, write: Write) -> None:
    """Exit code 3 as of a backfill, the outcome in the line, and the run told of in words."""
    assert schedule(bundle.path, write(), "--once") == 0
    few = {name: [1] for name in ("customer_id", "visits", "returns", "basket")}
    assert schedule(bundle.path, write(**few), "--once", "--json") == 3
    found = schedule.json()
    assert (found["outcome"], found["state"]) == ("held", "held")
    assert "coverage" in found["reason"]
    assert schedule(bundle.path, write(**few), "--once") == 3
    assert re.search(r"^state +held: coverage", schedule.out, re.MULTILINE)


def test_once_while_somebody_else_is_at_work(schedule: Scheduling, bundle: Bundle, write: Write) -> None:
    """Exit code 1, and the holder."""
    with open_store(load_settings(), "purchase") as store:
        lease = store.leases.acquire("ann@host 7 run 1a2b3c", 60)
        assert schedule(bundle.path, write(), "--once", "--json") == 1
        store.leases.release(lease)
    found = schedule.json()
    assert found["outcome"] == "busy"
    assert "ann@host 7 run 1a2b3c" in found["reason"]
    assert schedule.err.startswith("forescore: the lease is held by ann@host 7 run 1a2b3c")


def test_once_that_fails(schedule: Scheduling, bundle: Bundle, write: Write) -> None:
    """Exit code 1 with the reason; nothing is published."""
    assert schedule(bundle.path, write(visits=[None] * 4), "--once", "--json") == 1
    found = schedule.json()
    assert found["outcome"] == "failed"
    assert "--max-rejected" in found["reason"]


def test_bundle_and_table_from_settings(
    schedule: Scheduling, bundle: Bundle, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without arguments, the settings say what is scored."""
    monkeypatch.setenv("FORESCORE_BUNDLE", str(bundle.path))
    monkeypatch.setenv("FORESCORE_SCHEDULE__TABLE", str(write()))
    assert schedule("--show") == 0


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((), "name a bundle and a table"),
        (("nowhere", "t.parquet"), "there is no such directory"),
        (("{bundle}", "t.parquet", "--cron", "never"), "FORESCORE_SCHEDULE__CRON"),
        (("{bundle}", "t.parquet", "--timezone", "Nowhere"), "FORESCORE_SCHEDULE__TIMEZONE"),
    ],
)
def test_a_mistake_in_the_call(schedule: Scheduling, bundle: Bundle, arguments: tuple[str, ...], rule: str) -> None:
    """Exit code 2 and one line, before anything is begun."""
    words = [word.format(bundle=bundle.path) for word in arguments]
    for how in ([], ["--show"], ["--once"]):
        assert schedule(*words, *how) == 2
        assert rule in schedule.err
        assert schedule.err.count("\n") == 1
