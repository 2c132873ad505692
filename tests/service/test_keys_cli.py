"""``forescore key``: a key is shown once, and its line is what the service reads."""

import stat
from pathlib import Path

import pytest
from support.command import Command

from service.keyring import read_keys
from service.keys import Access, find
from shared.settings import KeySettings


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_a_new_key_is_one_that_the_service_takes(command: Command, tmp_path: Path) -> None:
    """The key that was printed is found by the line that was written, which does not hold it."""
    file = tmp_path / "keys"
    printed = []
    for name, scope in (("app", "read"), ("loader", "read,write")):
        assert command("key", "new", "--name", name, "--scope", scope, "--file", file) == 0
        printed.append(command.told("key"))
    keys = read_keys(KeySettings(file=file))

    assert [key.name for key in keys] == ["app", "loader"]
    assert keys[1].scopes == {Access.READ, Access.WRITE}
    assert [find(keys, text.encode()) for text in printed] == keys
    assert all(text not in file.read_text(encoding="utf-8") for text in printed)
    assert stat.S_IMODE(file.stat().st_mode) & 0o007 == 0


def test_a_line_is_added_to_one_without_an_end(command: Command, tmp_path: Path) -> None:
    """A file that was edited by hand and lacks its last line break stays whole."""
    file = tmp_path / "keys"
    assert command("key", "new", "--name", "a", "--file", file) == 0
    file.write_text(file.read_text(encoding="utf-8").rstrip("\n"), encoding="utf-8")
    assert command("key", "new", "--name", "b", "--file", file) == 0
    assert [key.name for key in read_keys(KeySettings(file=file))] == ["a", "b"]


def test_list_shows_names_and_no_keys(command: Command, tmp_path: Path) -> None:
    """Names, scopes, the beginning of the digest, and the end; neither a key nor a whole digest."""
    file = tmp_path / "keys"
    command("key", "new", "--name", "app", "--scope", "admin", "--days", "30", "--file", file)
    key = command.told("key")
    assert command("key", "list", "--file", file) == 0
    name, scopes, digest, end = command.out.split()
    assert (name, scopes, len(digest), end[-1]) == ("app", "admin", 12, "Z")
    assert key not in command.out


def test_check_says_what_a_key_allows(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known key by its name and scopes; an unknown one is refused, and not repeated."""
    file = tmp_path / "keys"
    command("key", "new", "--name", "app", "--scope", "read,write", "--file", file)
    monkeypatch.setenv("FORESCORE_API_KEY", command.told("key"))
    assert command("key", "check", "--file", file) == 0
    assert command.out == "a key of app: read, write\n"
    monkeypatch.setenv("FORESCORE_API_KEY", "fsk_wrong")
    assert command("key", "check", "--file", file) == 1
    assert "fsk_wrong" not in command.err + command.out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["new", "--name", "a b"], "name"),
        (["new", "--name", "app", "--scope", "all"], "scopes"),
        (["new", "--name", "app", "--file", "/nowhere/keys"], "/nowhere/keys"),
        (["list", "--file", "/nowhere/keys"], "/nowhere/keys"),
        (["list"], "FORESCORE_KEYS__FILE"),
    ],
)
def test_a_mistake_is_one_line(command: Command, arguments: list[str], named: str) -> None:
    """It names the thing, and ends with exit code 2."""
    assert command("key", *arguments) == 2
    assert named in command.err
    assert command.err.count("\n") == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - it is refused
def test_other_addresses_are_not_served_without_keys(command: Command, tmp_path: Path, host: str) -> None:
    """One line with both ways out, before anything is loaded."""
    assert command("serve", tmp_path, "--host", host, "--port", 0) == 2
    assert "--open" in command.err
    assert "forescore key new" in command.err


def test_broken_keys_are_told_before_anything_is_loaded(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on loopback, where none are needed."""
    monkeypatch.setenv("FORESCORE_KEYS__LINES", "app read nothing")
    assert command("serve", tmp_path, "--port", 0) == 2
    assert "FORESCORE_KEYS__LINES, line 1" in command.err
