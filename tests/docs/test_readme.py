"""The README is true: its script and its commands run as they stand there, in the order in which they are read."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from support.services import ready_process

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]

pytestmark = pytest.mark.timeout(300)


def blocks(language: str, section: str) -> list[str]:
    text = README.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(section: str) -> list[list[str]]:
    """The commands of a section, each as its words."""
    return words_of("".join(blocks("sh", section)))


def words_of(text: str) -> list[list[str]]:
    lines = text.replace("\n  ", " ").splitlines()
    return [shlex.split(line) for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder, with the script of the README saved in it and run."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "examples").symlink_to(ROOT / "examples")
    (script,) = blocks("python", "Your own model in ten minutes")
    (folder / "train.py").write_text(script, encoding="utf-8")
    run(folder, ["python", "train.py"])
    return folder


def environment() -> dict[str, str]:
    """As in an active venv without settings; with one thread, since other tests run beside."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("FORESCORE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return others | {"FORESCORE_THREADS": "1", "OMP_NUM_THREADS": "1", "PATH": path}


def run(folder: Path, words: list[str]) -> str:
    command = [str(Path(sys.executable).parent / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def ask(client: httpx2.Client, curl: list[str]) -> httpx2.Response:
    """What curl would do with these words, but on the port of the test."""
    options = dict(zip(curl[1::2], curl[2::2], strict=False)) if curl[1].startswith("-") else {}
    url = next(word for word in curl if word.startswith("http://127.0.0.1:8000/"))
    data = next((curl[place + 1] for place, word in enumerate(curl) if word == "-d"), None)
    return client.request(options.get("-X", "GET"), url.removeprefix("http://127.0.0.1:8000"), content=data)


@pytest.fixture(scope="module")
def scored(folder: Path) -> dict[str, str]:
    """What each command of the section printed, up to the service."""
    wanted = [words for words in commands("Your own model in ten minutes") if words[0] == "forescore"]
    return {shlex.join(words): run(folder, words) for words in wanted if words[1] != "serve"}


@pytest.fixture(scope="module")
def client(folder: Path, scored: dict[str, str]) -> Iterator[httpx2.Client]:
    """The service of the section, on a free port."""
    (serve,) = (words for words in commands("Your own model in ten minutes") if words[:2] == ["forescore", "serve"])
    arguments = [str(folder / word) if word == "churn-bundle" else word for word in serve[2:]]
    home = {"FORESCORE_HOME": str(folder / ".forescore"), "FORESCORE_THREADS": "1"}
    with ready_process(folder / "serve", *arguments, **home) as client:
        yield client


def test_the_script_is_short() -> None:
    """Ten minutes: the training script fits on a screen."""
    (script,) = blocks("python", "Your own model in ten minutes")

    assert len([line for line in script.splitlines() if line.strip()]) <= 45


def test_the_commands_score_the_table(scored: dict[str, str]) -> None:
    """The script's bundle is shown, the table scored and promoted, and a customer's score printed."""
    shown, filled, got = scored.values()

    assert "churn 1" in shown
    assert "promoted" in filled
    assert "C0000" in got


def test_the_questions_have_their_answers(client: httpx2.Client) -> None:
    """Known from the cache, features put, unseen online, and a list in which the unknown costs only itself."""
    curls = [words for words in commands("Your own model in ten minutes") if words[0] == "curl"]
    known, put, unseen, many = (ask(client, words) for words in curls)
    results = many.json()["results"]

    assert known.json()["source"] == "cache"
    assert put.status_code == 204
    assert unseen.json()["source"] == "online"
    assert ["scores" in result for result in results] == [True, False, True]
    assert results[1]["error"]["status"] == 404


def test_an_answer_looks_as_it_is_shown(client: httpx2.Client) -> None:
    """The answer in the README has the keys of a real one, in their order."""
    (shown,) = blocks("json", "Your own model in ten minutes")
    answer = client.get("/score/C0000").json()

    assert list(answer) == list(json.loads(shown))
    assert answer["scores"]["churn"] == pytest.approx(json.loads(shown)["scores"]["churn"], abs=0.02)


def test_snapshots_and_rollback(folder: Path, scored: dict[str, str]) -> None:
    """The second backfill makes a second snapshot, and rolling back makes the first one active again."""
    again, listed, back = (run(folder, words) for words in commands("Snapshots and rollback"))
    first, second = (re.findall(r"1-[0-9A-Z]{26}", text)[0] for text in (scored_backfill(scored), again))

    assert first != second
    assert {first, second} <= set(re.findall(r"1-[0-9A-Z]{26}", listed))
    assert first in back


def test_the_schedule_is_shown_and_run_once(folder: Path, scored: dict[str, str]) -> None:
    """The commands of "Every night" and of its page: nothing to catch up with after the backfill, and a run by hand."""
    page = (ROOT / "docs" / "schedule.md").read_text(encoding="utf-8")
    given = [
        *commands("Every night"),
        *words_of("".join(re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))),
    ]
    *shown, made = (run(folder, words) for words in given)

    assert len(shown) == 2
    assert all(re.search(r"^would_catch_up +false$", text, re.MULTILINE) for text in shown)
    assert re.search(r"^state +promoted$", made, re.MULTILINE)


def scored_backfill(scored: dict[str, str]) -> str:
    return next(text for command, text in scored.items() if "backfill" in command)


def test_the_settings_are_those_of_the_code() -> None:
    """Each setting that the README shows has the default and the meaning of docs/settings.md."""
    complete = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (`FORESCORE_\w+`) \| (.+?) \| (.+) \|$", README, re.MULTILINE)

    assert len(shown) >= 8
    for name, default, meaning in shown:
        assert re.search(
            rf"^\| {re.escape(name)} \| {re.escape(default)} \|.*\| {re.escape(meaning)} \|$", complete, re.MULTILINE
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links within the project lead to files that are there."""
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link
