"""The batch job's commands, as a user calls them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import Command
from support.servers import dead_port
from support.snapshots import snapshot_meta

from shared.bundle import Bundle
from shared.errors import Fenced
from shared.settings import load_settings
from shared.store.connect import open_store
from shared.testing.bundles import purchase_bundle

Write = Callable[..., Path]
BAD_ROW = {"visits": [1, None, 2, 1]}


def test_backfill_and_get(command: Command, bundle: Bundle, write: Write) -> None:
    """C1: from a table to an answer: a score, the reason why there is none, and unknown."""
    assert command("backfill", bundle.path, write(**BAD_ROW), "--chunk-size", 2, "--max-rejected", 1) == 0
    assert (command.told("scored"), command.told("rejected"), command.told("state")) == (
        "3",
        "1 (1 missing in visits)",
        "promoted",
    )
    assert re.fullmatch(r"1-[0-9A-Z]{26}", command.told("snapshot"))
    assert "4 of 4 rows (100%)" in command.err
    assert command("get", 0) == 0
    assert (command.told("status"), command.told("scores"), command.told("prediction")) == (
        "scored",
        "buys 0.8581489",
        "buys true",
    )
    assert command("get", 1) == 0
    assert (command.told("status"), command.told("code"), command.told("field")) == ("rejected", "missing", "visits")
    assert command("get", 9) == 1
    assert command.told("status") == "unknown"


def test_json_for_machines(command: Command, bundle: Bundle, write: Write) -> None:
    """With --json every line of the output is JSON, and the last one is the report."""
    assert command("backfill", bundle.path, write(), "--chunk-size", 2, "--json") == 0
    events = [json.loads(line)["event"] for line in command.out.splitlines()]
    assert events == ["planned", "chunk", "chunk", "finished"]
    report = command.json()
    assert report["state"] == "promoted"
    assert command("get", 2, "--json") == 0
    assert command.json()["scores"] == {"buys": 0.7310586}
    assert command("snapshots", "--json") == 0
    assert [row["snapshot"] for row in json.loads(command.out)] == [report["snapshot"]]


def test_the_same_command_again_is_done(command: Command, bundle: Bundle, write: Write) -> None:
    """A finished run is reported, and neither scored nor published again."""
    path = write()
    assert command("backfill", bundle.path, path) == 0
    snapshot = command.told("snapshot")
    assert command("backfill", bundle.path, path) == 0
    assert command.told("snapshot") == snapshot
    assert command.err == ""
    assert command("backfill", bundle.path, path, "--force") == 0
    assert command.told("snapshot") != snapshot


def test_a_dry_run_writes_nothing(command: Command, bundle: Bundle, write: Write, tmp_path: Path) -> None:
    """--dry-run says rows, chunks, duplicates, what the first chunk's rows look like, and the store's share."""
    path = write(customer_id=["a", "a", "b", "c"], visits=[1, None, 2, 1])
    assert command("backfill", bundle.path, path, "--chunk-size", 3, "--dry-run") == 0
    assert command.told("rows") == "4 in 2 chunks"
    assert command.told("duplicate") == "1: refused without --order-by COLUMN or --duplicates last"
    assert command.told("checked") == "the first 3 rows: rejected 1 missing in visits"
    assert command("backfill", bundle.path, path, "--order-by", "visits", "--dry-run", "--json") == 0
    assert (command.json()["rows"], command.json()["duplicates"]) == (4, 1)
    assert not (tmp_path / "home").exists()
    assert command("snapshots", "--model", "purchase") == 0
    assert command.out == "model purchase has no snapshots; forescore backfill makes one\n"


def test_without_publishing_no_store_is_asked(
    command: Command, bundle: Bundle, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--no-publish scores into parts; the command without it publishes them."""
    store = f"redis://127.0.0.1:{dead_port()}"
    path = write()
    with monkeypatch.context() as without:
        without.setenv("FORESCORE_REDIS__URL", store)
        assert command("backfill", bundle.path, path, "--no-publish", "--out", tmp_path / "out") == 0
    assert command.told("state") == "scored"
    assert len(list((tmp_path / "out" / "parts").iterdir())) == 1
    assert command("backfill", bundle.path, path, "--out", tmp_path / "out") == 0
    assert command.told("state") == "promoted"


def test_a_held_snapshot_is_3_and_can_be_promoted(command: Command, bundle: Bundle, write: Write) -> None:
    """A gate holds it: exit code 3, the numbers, and the command that overrules."""
    path = write()
    assert command("backfill", bundle.path, path) == 0
    old = command.told("snapshot")
    assert command("backfill", bundle.path, path, "--limit", 2, "--into", "alone") == 3
    held = command.told("snapshot")
    assert f"snapshot {held} is held and the old one stays active: coverage" in command.err
    assert f"forescore promote {held} --force" in command.err
    assert command("snapshots") == 0
    states = {line.split()[0]: line.split()[1] for line in command.out.splitlines()[1:]}
    assert states == {old: "active", held: "held"}
    assert command("get", 0, "--snapshot", held) == 0
    assert command("promote", held) == 3
    assert command("promote", held, "--force") == 0
    assert command.out == f"active: {held} (promote, forced)\n"
    assert command("rollback") == 0
    assert command.out == f"active: {old} (rollback)\n"
    assert command("retire", held) == 0
    assert command.out == f"retired {held}: 1 keys removed\n"
    assert command("promote", old, "--json") == 0
    assert command.json()["action"] == "promote"


def test_a_rollback_waits_for_nobody(command: Command, bundle: Bundle, write: Write) -> None:
    """What is served is wrong, and a run that is at work is no reason to serve it on: that run is fenced."""
    assert command("backfill", bundle.path, write()) == 0
    old = command.told("snapshot")
    assert command("backfill", bundle.path, write(), "--force") == 0
    new = command.told("snapshot")
    with open_store(load_settings(), bundle.name) as store:
        lease = store.leases.acquire("ops@host 7 a run", 60)
        assert command("rollback") == 0
        assert command.out == f"active: {old} (rollback)\n"
        assert "stopped from publishing: ops@host 7 a run" in command.err
        with pytest.raises(Fenced):
            store.control.promote(new, lease, by="ops")


def test_the_age_of_the_data_can_be_told(command: Command, bundle: Bundle, write: Write) -> None:
    """--data-as-of is what answers say of the age of the data; without a zone it is UTC."""
    assert command("backfill", bundle.path, write(), "--data-as-of", "2026-11-30T02:00") == 0
    assert command("get", 0, "--json") == 0
    assert command.json()["data_as_of"] == "2026-11-30T02:00:00Z"


def test_several_models_must_be_told_apart(command: Command, bundle: Bundle, write: Write) -> None:
    """A command that could mean two models asks which."""
    assert command("backfill", bundle.path, write()) == 0
    with open_store(load_settings(), "churn") as store:
        store.writer.begin(snapshot_meta())
    assert command("get", 0) == 2
    assert "name one: --model churn or --model purchase" in command.err
    assert command("get", 0, "--model", "purchase") == 0


def test_the_bundle_of_the_settings_names_the_model(
    command: Command, bundle: Bundle, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORESCORE_BUNDLE says which model is meant."""
    assert command("backfill", bundle.path, write()) == 0
    monkeypatch.setenv("FORESCORE_BUNDLE", str(bundle.path))
    assert command("get", 0) == 0


def csv(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


HEADER = "customer_id,visits,returns,basket\n"

Make = Callable[[Path, Bundle], list[object]]
BACKFILL_MISTAKES: dict[str, tuple[Make, int, str]] = {
    "no bundle": (lambda at, _: [at / "none", csv(at / "t.csv", HEADER)], 2, "bundle .*none does not exist"),
    "no table": (lambda at, b: [b.path, at / "none.parquet"], 2, "no such file or folder; name a Parquet"),
    "damaged": (lambda at, b: [b.path, csv(at / "t.parquet", "PAR1")], 2, "t.parquet: cannot be read: it is damaged"),
    "no column": (
        lambda at, b: [b.path, csv(at / "t.csv", "customer_id,visit,returns,basket\n")],
        2,
        "column visits is missing; near it: visit",
    ),
    "no rows": (lambda at, b: [b.path, csv(at / "t.csv", HEADER)], 2, "no rows are left to score"),
    "where": (lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--where", "visits >"], 2, "--where: position 9"),
    "partition": (
        lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--partition", "dt=1"],
        2,
        "no partition dt=1; its files lie in no key=value folders",
    ),
    "no list": (
        lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--entities", at / "none"],
        2,
        "--entities .*none: cannot be read: No such file",
    ),
    "list of none": (
        lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--entities", csv(at / "ids", "\n")],
        2,
        "lists no ids",
    ),
    "order": (lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--order-by", "day"], 2, "column day is missing"),
    "limit": (lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--limit", "0"], 2, "--limit: at least 1 row"),
    "chunk": (lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--chunk-size", "0"], 2, "--chunk-size: at least 1"),
    "share": (
        lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--max-rejected", "some"],
        2,
        "--max-rejected 'some': a count such as 120",
    ),
    "age": (lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--data-as-of", "now"], 2, "--data-as-of 'now': a date"),
    "duplicates": (
        lambda at, b: [b.path, csv(at / "t.csv", HEADER + "a,1,1,1\na,1,1,1\n")],
        1,
        "1 rows repeat the id of another row, among them those of 'a'",
    ),
    "rejected": (
        lambda at, b: [b.path, csv(at / "t.csv", HEADER + "a,1,1,x\n")],
        1,
        "1 of 1 rows rejected, more than --max-rejected 10%: 1 not_a_number in basket",
    ),
    "no folder": (
        lambda at, b: [b.path, csv(at / "t.csv", HEADER), "--out", csv(at / "file", "") / "out"],
        1,
        "cannot be written to: not a directory; name another folder with --out",
    ),
    "unknown option": (lambda at, b: [b.path, at, "--chunks", "1"], 2, "No such option"),
}


@pytest.mark.parametrize("mistake", list(BACKFILL_MISTAKES))
def test_a_mistake_with_backfill_is_one_line(command: Command, bundle: Bundle, tmp_path: Path, mistake: str) -> None:
    """Every mistake ends in one line on stderr that names the thing and the next step, with its exit code."""
    make, code, message = BACKFILL_MISTAKES[mistake]
    assert command("backfill", *make(tmp_path, bundle)) == code
    last = command.err.splitlines()[-1]
    assert re.search(message, last), last
    assert last.startswith("forescore: ")
    assert "Traceback" not in command.err
    assert command.out == ""


def test_a_float_column_of_ids_is_one_line(command: Command, bundle: Bundle, write: Write) -> None:
    """A float id column is refused before anything is scored."""
    assert command("backfill", bundle.path, write(customer_id=[0.0, 1.0, 2.0, 3.0])) == 2
    assert "column customer_id is double, which cannot be an entity id" in command.err
    assert command.err.count("\n") == 1


def test_a_dead_store_is_one_line_before_anything_is_scored(
    command: Command, bundle: Bundle, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is begun for a store that does not answer."""
    monkeypatch.setenv("FORESCORE_REDIS__URL", f"redis://127.0.0.1:{dead_port()}")
    assert command("backfill", bundle.path, write()) == 1
    assert command.err.count("\n") == 1
    assert command.err.startswith("forescore: ")
    assert not (tmp_path / "home").exists()
    assert command("get", 0) == 1
    assert command.err.count("\n") == 1


def test_new_weights_under_an_old_version_are_one_line(
    command: Command, bundle: Bundle, write: Write, tmp_path: Path
) -> None:
    """A2: the same name and version with another digest is refused before anything is scored."""
    assert command("backfill", bundle.path, write()) == 0
    other = purchase_bundle(tmp_path / "other", weights=(1.0, 1.0, 1.0))
    assert command("backfill", other.path, write()) == 1
    assert command.err.count("\n") == 1
    assert "version" in command.err


def test_a_folder_of_another_run_is_one_line(command: Command, bundle: Bundle, write: Write, tmp_path: Path) -> None:
    """D9: another run's folder is refused; --force replaces it."""
    arguments = ("backfill", bundle.path, write(), "--no-publish", "--out", tmp_path / "out")
    assert command(*arguments) == 0
    assert command(*arguments, "--limit", 1) == 1
    assert "holds another run" in command.err
    assert command(*arguments, "--limit", 1, "--force") == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("get", "0"), 1, "the store has no snapshots; forescore backfill makes one"),
        (("get", "0", "--model", "purchase"), 1, "model purchase has no active snapshot"),
        (("get", "0", "--model", "purchase", "--snapshot", "1-A"), 1, "model purchase has no snapshot 1-A"),
        (("get", ""), 1, "ENTITY: an id has 1 to 256 bytes"),
        (("get", "0", "--model", "Bad Name"), 2, "model 'Bad Name'"),
        (("promote", "1-A", "--model", "purchase"), 1, "1-A"),
        (("rollback", "--model", "purchase"), 1, "no earlier snapshot"),
        (("retire", "1-A", "--model", "purchase"), 1, "1-A"),
        (("promote",), 2, "Missing argument"),
    ],
)
def test_a_mistake_with_the_snapshots_is_one_line(
    command: Command, arguments: tuple[str, ...], code: int, message: str
) -> None:
    """What is not there cannot be asked for, promoted, or removed, and the line says so."""
    assert command(*arguments) == code
    assert message in command.err
    assert command.err.count("\n") == 1
    assert command.out == ""


def test_a_retired_active_snapshot_is_refused(command: Command, bundle: Bundle, write: Write) -> None:
    """What is served is never removed."""
    assert command("backfill", bundle.path, write()) == 0
    assert command("retire", command.told("snapshot"), "--force") == 1
    assert command.err.count("\n") == 1


def test_the_embedded_store_serves_where_no_url_is_set(
    command: Command, bundle: Bundle, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a URL the scores go into the store under FORESCORE_HOME, and are there for the next command."""
    monkeypatch.delenv("FORESCORE_REDIS__URL")
    assert command("backfill", bundle.path, write()) == 0
    assert command("get", 3) == 0
    assert command.told("scores") == "buys 0.6899745"
    assert (tmp_path / "home").is_dir()
