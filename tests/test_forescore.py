import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

import forescore
from shared.errors import BundleNotFound, SnapshotHeld


@pytest.mark.parametrize("name", forescore.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """Each name that a training script may import exists, and is the same at the second asking."""
    assert getattr(forescore, name) is getattr(forescore, name)
    assert name in dir(forescore)


def test_public_names_are_sorted() -> None:
    """The list of public names is sorted and has none twice."""
    assert sorted(set(forescore.__all__)) == forescore.__all__


def test_an_unknown_name_is_refused() -> None:
    """A name that does not exist is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        forescore.nothing  # noqa: B018 - the access is the test


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A command ``fail`` that raises the one exception in this list."""
    planned: list[BaseException] = []
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise planned[0]

    @app.command()
    def succeed() -> None:
        pass

    monkeypatch.setattr(forescore, "commands", lambda: app)
    return planned


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BundleNotFound("bundle: nothing at x;\n  build one first"), 2, "bundle: nothing at x; build one first"),
        (SnapshotHeld("snapshot 1-A is held"), 3, "snapshot 1-A is held"),
        (typer.Abort(), 1, "stopped before it was done"),
        (typer.BadParameter("no such thing"), 2, "Invalid value: no such thing"),
    ],
)
def test_a_mistake_is_one_line(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    """An error of Forescore ends as one line on stderr with the exit code of its class."""
    failing.append(error)
    assert forescore.run(["fail"]) == code
    printed = capsys.readouterr()
    assert printed.err.startswith(f"forescore: {line}")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_fault_of_ours_is_named_and_not_quoted(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    """An unexpected exception ends as one line with its kind and place, and without its message."""
    failing.append(ValueError("could not convert 4242.4242"))
    assert forescore.run(["fail"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("forescore: internal error: ValueError at test_forescore.py:")
    assert "FORESCORE_LOG_LEVEL=debug" in printed
    assert printed.count("\n") == 1
    assert "4242" not in printed


def test_a_traceback_is_there_for_who_asks(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At log level debug the traceback of an unexpected exception is shown."""
    monkeypatch.setenv("FORESCORE_LOG_LEVEL", "debug")
    failing.append(ValueError("why"))
    assert forescore.run(["fail"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_interrupt_is_quiet(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends with 130, as shells expect, and says nothing."""
    failing.append(KeyboardInterrupt())
    assert forescore.run(["fail"]) == 130
    assert capsys.readouterr().err == ""


def test_success_is_zero(failing: list[BaseException]) -> None:
    """A command that returns has succeeded."""
    assert forescore.run(["succeed"]) == 0


def test_a_wrong_option_is_one_line(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in the call ends with 2 and one line that says where help is."""
    assert forescore.run(["fail", "--x"]) == 2
    assert capsys.readouterr().err == "forescore: No such option: --x. Try 'forescore fail --help'\n"


def test_a_demo_without_its_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the examples are not beside the module, the demo says to clone the repository."""
    monkeypatch.setattr(forescore, "__file__", str(tmp_path / "forescore.py"))
    assert forescore.run(["demo"]) == 2
    assert "clone it" in capsys.readouterr().err


def test_the_demo_is_given_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The demo beside the module is run with what the command was told."""
    demo = tmp_path / "examples" / "telco_churn" / "demo.py"
    demo.parent.mkdir(parents=True)
    demo.write_text(
        "from pathlib import Path\n"
        "def main(check, port):\n"
        "    Path(__file__).with_name('told').write_text(f'{check} {port}')\n"
    )
    monkeypatch.setattr(forescore, "__file__", str(tmp_path / "forescore.py"))
    assert forescore.run(["demo", "--check", "--port", "0"]) == 0
    assert (demo.parent / "told").read_text() == "True 0"


def test_the_installed_command() -> None:
    """The command on the path is this one, and says its version."""
    command = Path(sys.executable).with_name("forescore")
    done = subprocess.run([command, "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"forescore {version('forescore')} (Python ")


def test_no_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command, the help is shown and the exit code says that nothing was done."""
    assert forescore.run([]) == 2
    printed = capsys.readouterr()
    assert "backfill" in printed.out
    assert printed.err == ""


@pytest.mark.parametrize("command", ["backfill", "serve", "demo"])
def test_the_help_keeps_what_is_in_brackets(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default that an option's help names in brackets is shown, and not taken for markup."""
    monkeypatch.setenv("COLUMNS", "400")
    group: Any = typer.main.get_command(forescore.commands())
    assert forescore.run([command, "--help"]) == 0
    printed = capsys.readouterr().out
    named = [text for option in group.commands[command].params for text in re.findall(r"\[default: .*?\]", option.help)]
    assert named
    assert [text for text in named if text not in printed] == []
