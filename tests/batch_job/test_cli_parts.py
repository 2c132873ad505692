"""``forescore backfill`` of a part of a table, as a user calls it."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command import Command

from batch_job.run import score_batch
from shared.bundle import Bundle
from shared.errors import SettingsError

Write = Callable[..., Path]
PAGE = Path(__file__).parents[2] / "docs" / "backfill.md"
ONE = "0.8581489"  # the score of visits 1, returns 0, basket 2
DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORESCORE_GATES__MAX_PSI", "100")


def by_day(folder: Path, days: tuple[str, ...]) -> Path:
    """A customer a day of its own, and one who comes every day with another row."""
    for number, day in enumerate(days):
        path = folder / f"dt={day}" / "part.parquet"
        path.parent.mkdir(parents=True)
        rows = {"customer_id": ["each", f"c{number}"], "visits": [number, 1], "returns": [0, 0], "basket": [1, 2]}
        pq.write_table(pa.table(rows), path)
    return folder


@pytest.fixture
def days(tmp_path: Path) -> Path:
    return by_day(tmp_path / "days", DAYS)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "ids.txt"
    path.write_text("1\n3\nnobody\n")
    return path


def test_a_part_must_be_told_where_it_goes(command: Command, bundle: Bundle, write: Write, listed: Path) -> None:
    """With a snapshot active, no part of a table replaces it by mistake: nothing is scored; three words are named."""
    assert command("backfill", bundle.path, write()) == 0
    runs = len(list((Path(str(listed)).parent / "home" / "runs").glob("purchase-*")))
    for options in (("--entities", listed), ("--where", "visits >= 1"), ("--limit", 2)):
        assert command("backfill", bundle.path, write(), *options) == 2
        assert re.search(r"--into: .* snapshot 1-\w+ is active; say where they go: new .* active .* alone", command.err)
        assert command.err.count("\n") == 1
    assert len(list((listed.parent / "home" / "runs").glob("purchase-*"))) == runs


def test_the_first_part_stands_alone(command: Command, bundle: Bundle, write: Write) -> None:
    """Where nothing is active nothing can be dropped; the same command again is done, and --force does it again."""
    arguments = ("backfill", bundle.path, write(), "--limit", 2)
    for more in ((), (), ("--force",)):
        assert command(*arguments, *more) == 0
        assert command.told("scored") == "2"
    assert command("backfill", bundle.path, write(), "--limit", 3) == 2


def test_a_part_into_a_copy(command: Command, bundle: Bundle, write: Write, listed: Path) -> None:
    """It says which: a copy of which snapshot; a rollback leads back."""
    assert command("backfill", bundle.path, write()) == 0
    first = command.told("snapshot")
    part = write("part.parquet", visits=[1] * 4, returns=[0] * 4, basket=[2] * 4)
    assert command("backfill", bundle.path, part, "--entities", listed, "--into", "new") == 0
    second = command.told("snapshot")
    assert command.told("into") == f"a copy of {first}, in which these entities were replaced or added"
    assert command.told("not found") == f"1 of the ids in {listed}"
    assert command("get", 1) == 0
    assert (command.told("scores"), command.told("snapshot")) == (f"buys {ONE}", second)
    assert command("get", 2) == 0
    assert (command.told("scores"), command.told("snapshot")) == ("buys 0.7310586", second)
    assert command("snapshots") == 0
    assert re.search(rf"^{second} +active .*copy of {first}: 2 entities of ", command.out, re.MULTILINE)
    assert command("rollback") == 0
    assert command("get", 1) == 0
    assert command.told("scores") != f"buys {ONE}"


def test_a_part_in_place(command: Command, bundle: Bundle, write: Write, listed: Path) -> None:
    """It says that it was in place, and that no rollback undoes it."""
    assert command("backfill", bundle.path, write()) == 0
    first = command.told("snapshot")
    part = write("part.parquet", visits=[1] * 4, returns=[0] * 4, basket=[2] * 4)
    arguments = ("backfill", bundle.path, part, "--entities", listed, "--into", "active")
    assert command(*arguments) == 0
    assert (command.told("snapshot"), command.told("state")) == (first, "updated")
    assert command.told("into") == "the active snapshot itself, in place"
    assert "next: know that no rollback undoes this" in command.out
    assert command("get", 3) == 0
    assert (command.told("scores"), command.told("snapshot")) == (f"buys {ONE}", first)
    assert command("snapshots") == 0
    assert re.search(rf"^{first} +active .*updated in place: 2 entities of ", command.out, re.MULTILINE)
    assert command(*arguments) == 0
    assert "done before" in command.out
    assert command(*arguments, "--force", "--json") == 0
    told = command.json()
    assert (told["snapshot"], told["state"], told["into"], told["base"]) == (first, "updated", "active", first)
    assert told["entities_not_found"] == 1


def test_a_run_goes_one_way(command: Command, bundle: Bundle, write: Write, listed: Path) -> None:
    """What went into a copy does not go elsewhere too, unless it is begun anew."""
    assert command("backfill", bundle.path, write()) == 0
    arguments = ("backfill", bundle.path, write(), "--entities", listed)
    assert command(*arguments, "--into", "new") == 0
    assert command(*arguments, "--into", "active") == 1
    assert re.search("this run was begun with --into new .it is promoted.; leave that", command.err)
    assert command(*arguments) == 0
    assert "done before" in command.out
    assert command(*arguments, "--into", "active", "--force") == 0


def test_scored_parts_go_where_they_are_told_later(
    command: Command, bundle: Bundle, write: Write, listed: Path
) -> None:
    """--no-publish asks nothing of the store; the command without it must say where."""
    arguments = ("backfill", bundle.path, write(), "--entities", listed)
    assert command("backfill", bundle.path, write()) == 0
    assert command(*arguments, "--no-publish") == 0
    assert command(*arguments) == 2
    assert command(*arguments, "--into", "active") == 0
    assert command.told("state") == "updated"


@pytest.mark.parametrize("into", ["new", "active"])
def test_another_version_is_refused_before_anything_is_scored(
    command: Command, bundle: Bundle, other_bundle: Bundle, write: Write, tmp_path: Path, into: str
) -> None:
    """One snapshot has the scores of one model; its version is not taken by the refusal either."""
    assert command("backfill", bundle.path, write()) == 0
    assert command("backfill", other_bundle.path, write(), "--limit", 1, "--into", into) == 1
    assert re.search("is of purchase 1, and the bundle is purchase 2: .*backfill the whole table", command.err)
    assert command.err.count("\n") == 1
    assert len(list((tmp_path / "home" / "runs").glob("purchase-*"))) == 1


@pytest.mark.parametrize("into", ["new", "active"])
def test_nothing_to_join(command: Command, bundle: Bundle, write: Write, into: str) -> None:
    """Without an active snapshot the next step is told."""
    assert command("backfill", bundle.path, write(), "--limit", 1, "--into", into) == 1
    assert "model purchase has no active snapshot that the scores could join" in command.err


def test_a_whole_table_makes_a_snapshot_of_its_own(command: Command, bundle: Bundle, write: Write) -> None:
    """--into new says nothing else of a whole table; --into active updates what is there."""
    assert command("backfill", bundle.path, write()) == 0
    first = command.told("snapshot")
    assert command("backfill", bundle.path, write("again.parquet"), "--into", "new") == 0
    assert command.told("snapshot") != first
    assert "\ninto " not in command.out
    second = command.told("snapshot")
    assert command("backfill", bundle.path, write("third.parquet", visits=[1] * 4), "--into", "active") == 0
    assert command.told("snapshot") == second


def test_a_range_of_days(command: Command, bundle: Bundle, days: Path) -> None:
    """An entity of several days counts once: the latest day by the folder's own column, which the refusal names."""
    arguments = ("backfill", bundle.path, days, "--partition", "dt=2026-11-01..2026-11-02")
    assert command(*arguments) == 1
    assert "1 rows repeat the id of another row" in command.err
    assert "--order-by dt (the later partition), --order-by COLUMN" in command.err
    assert command(*arguments, "--order-by", "dt", "--dry-run") == 0
    assert command.told("partitions") == "2 of dt, 2026-11-01 to 2026-11-02"
    assert command(*arguments, "--order-by", "dt") == 0
    assert (command.told("scored"), command.told("duplicate")) == ("3", "1")
    assert command("get", "each", "--json") == 0
    latest = command.json()["scores"]
    assert command.json()["data_as_of"] == "2026-11-02T00:00:00Z"
    assert command("get", "c2") == 1
    assert command("backfill", bundle.path, days, "--partition", "dt=2026-11-03..", "--into", "active") == 0
    assert command("get", "each", "--json") == 0
    assert command.json()["scores"] != latest
    assert command.json()["data_as_of"] == "2026-11-02T00:00:00Z"  # the older of the two
    assert command("get", "c2") == 0


def test_the_bundle_must_have_the_version_that_is_told(command: Command, bundle: Bundle, write: Write) -> None:
    """A nightly script does not publish with another bundle than it thinks."""
    assert command("backfill", bundle.path, write(), "--model-version", "1", "--no-publish") == 0
    assert command("backfill", bundle.path, write(), "--model-version", "2") == 2
    assert re.search("--model-version 2: the bundle .* is purchase 1; name the bundle of that version", command.err)
    assert command.err.count("\n") == 1


def test_a_dry_run_counts_what_is_not_found(command: Command, bundle: Bundle, write: Write, listed: Path) -> None:
    """How many of the listed ids, and not which; with --limit it cannot be known."""
    arguments = ("backfill", bundle.path, write(), "--entities", listed, "--dry-run")
    assert command(*arguments) == 0
    assert command.told("not found") == "1 of the listed ids"
    assert "nobody" not in command.out
    assert command(*arguments, "--json") == 0
    assert command.json()["not_found"] == 1
    assert command(*arguments, "--limit", 1, "--json") == 0
    assert command.json()["not_found"] is None


def test_from_python(bundle: Bundle, days: Path, tmp_path: Path) -> None:
    """``score_batch`` takes ranges, and the version that it must be."""
    manifest = score_batch(
        days, tmp_path / "out", bundle=bundle, partition="dt=..2026-11-02", order_by="dt", model_version="1"
    )
    assert (manifest.counts.scored, manifest.counts.duplicate) == (3, 1)
    assert json.loads((tmp_path / "out" / "report.json").read_bytes())["partition"] == "dt=..2026-11-02"
    with pytest.raises(SettingsError, match="--model-version 9"):
        score_batch(days, tmp_path / "out", bundle=bundle, model_version="9")


def test_the_examples_of_the_page(
    command: Command, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of docs/backfill.md run as they are written, over a table of that shape."""
    examples = re.findall(r"^```sh\nforescore (backfill BUNDLE .*)\n```$", PAGE.read_text(), re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    by_day(tmp_path / "days", ("2026-11-27", "2026-11-28", "2026-11-29", "2026-11-30"))
    (tmp_path / "customers.txt").write_text("each\nc3\n")
    assert command("backfill", bundle.path, "days", "--order-by", "dt") == 0
    states = []
    for example in examples:
        arguments = [str(bundle.path) if word == "BUNDLE" else word for word in shlex.split(example)]
        assert command(*arguments) == 0, command.err
        states.append(command.told("state"))
    assert states == ["promoted", "updated"]
