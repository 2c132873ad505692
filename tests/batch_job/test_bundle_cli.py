import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

import forescore
from batch_job import bundle_cli
from shared.bundle import GRAPH, Bundle, load_bundle
from shared.testing.bundles import every_feature_bundle

TRAIN = """
import pyarrow as pa
from torch import nn
from forescore import BundleSpec, Numeric, Regression, Schema, fit

def bundle():
    schema = Schema(features=[Numeric("a")], outputs=[Regression("y")])
    module = nn.Linear(1, 1).eval()
    return BundleSpec(name="mine", version="7", fitted=fit(schema), module=module, golden=pa.table({"a": [1.0, 2.0]}))

def training():
    spec = bundle()
    spec.module.train()
    return spec

def nothing():
    pass

def fails():
    return 1 / 0

number = 5
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs ``forescore bundle ...`` in a directory of its own: exit code, stdout, stderr."""
    app = typer.Typer()
    bundle_cli.register(app)
    app.command()(forescore.version)  # a second command, as in the whole app
    monkeypatch.setattr(forescore, "commands", lambda: app)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = forescore.run(["bundle", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    yield call
    for name in set(sys.modules) - known:
        if name in {"train", "broken", "needs"}:
            del sys.modules[name]


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return every_feature_bundle(tmp_path_factory.mktemp("bundles") / "everything")


def test_build_calls_a_function_of_the_working_directory(run: Run, tmp_path: Path) -> None:
    """The user's function is found beside the command, and its bundle is built and told."""
    (tmp_path / "train.py").write_text(TRAIN)
    code, out, err = run("build", "train:bundle", tmp_path / "out")
    assert (code, err) == (0, "")
    bundle = load_bundle(tmp_path / "out")
    assert (bundle.name, bundle.version) == ("mine", "7")
    assert "mine 7" in out
    assert bundle.digest in out


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("train", 2, "is not MODULE:FUNCTION"),
        ("train.py:bundle", 2, "no module train.py"),
        ("train:", 2, "is not MODULE:FUNCTION"),
        ("../train:bundle", 2, "is not MODULE:FUNCTION"),
        ("missing:bundle", 2, "there is no module missing"),
        ("train:missing", 2, "no function missing"),
        ("train:number", 2, "no function number"),
        ("train:nothing", 2, "returned NoneType"),
        ("train:fails", 1, "raised ZeroDivisionError"),
        ("train:training", 1, "training mode"),
        ("broken:bundle", 2, "cannot be imported: SyntaxError"),
        ("needs:bundle", 2, "imports nowhere_to_be_found, which is not installed"),
    ],
)
def test_a_mistake_in_the_function_is_one_line(run: Run, tmp_path: Path, function: str, code: int, words: str) -> None:
    """Whatever is wrong with the user's function ends in one line that names it, and nothing is built."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "broken.py").write_text("def :")
    (tmp_path / "needs.py").write_text("import nowhere_to_be_found")
    found, out, err = run("build", function, tmp_path / "out")
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_build_never_overwrites(run: Run, tmp_path: Path) -> None:
    """A directory that is there is named, with the next step."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "out").mkdir()
    code, _, err = run("build", "train:bundle", tmp_path / "out")
    assert code == 1
    assert "choose another version" in err


def test_check_certifies_on_this_machine(run: Run, everything: Bundle) -> None:
    """check prints what was proved, for people and for machines."""
    code, out, _ = run("check", everything.path)
    assert code == 0
    assert out.startswith("certified\n")
    code, out, _ = run("check", everything.path, "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["digest"], facts["golden_rows"]) == (everything.digest, everything.manifest.golden_rows)
    assert len(facts["golden_digest"]) == 64


def test_show_prints_the_contract(run: Run, everything: Bundle) -> None:
    """show prints every feature with its rules, every input and every output with its classes."""
    code, out, _ = run("show", everything.path)
    assert code == 0
    for feature in everything.schema.features:
        assert feature.name in out
    assert "vocabulary=month, year, two years" in out
    assert "classes=stays, leaves" in out


def test_show_gives_machines_the_same(run: Run, everything: Bundle) -> None:
    """show --json holds the schema, the inputs and the digest."""
    code, out, _ = run("show", everything.path, "--json")
    contract = json.loads(out)
    assert code == 0
    assert contract["digest"] == everything.digest
    assert contract["schema"] == json.loads(everything.schema.to_json())
    assert [tensor["name"] for tensor in contract["inputs"]] == ["numeric", "codes", "embedding", "tokens", "mask"]


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_path_that_is_no_bundle_is_one_line(run: Run, tmp_path: Path, command: str) -> None:
    """A wrong path ends in one line, with the command that makes a bundle."""
    for path in (tmp_path, tmp_path / "missing"):
        code, _, err = run(command, path)
        assert code == 2
        assert err.count("\n") == 1
        assert "forescore bundle build" in err


def test_a_broken_bundle_is_one_line(run: Run, tmp_path: Path) -> None:
    """A bundle of which a byte has changed is named, with the file."""
    bundle = every_feature_bundle(tmp_path / "broken")
    (bundle.path / GRAPH).write_bytes(b"x")
    code, _, err = run("check", bundle.path)
    assert code == 1
    assert "graph.pt2 is not the file that was built" in err


def test_help_needs_no_torch() -> None:
    """The help of a command waits for neither torch nor pyarrow."""
    code = (
        "import sys, typer; from batch_job import bundle_cli; app = typer.Typer(); bundle_cli.register(app); "
        "typer.main.get_command(app); assert not {'torch', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
