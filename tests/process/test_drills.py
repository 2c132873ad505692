"""A short form of ``make drill`` and ``make soak``, on one service."""

from collections.abc import Iterator

import pytest
from drills import batch_faults, store_faults, store_outages
from drills.bench import Bench, opened_bench
from drills.drill import DRILLS, STILL_SERVING, Drill
from drills.report import as_json, print_table
from drills.scene import Scene
from drills.soak.soaking import SHORT, soak
from drills.soak.verdicts import passed, recovered_after
from rich.console import Console

SHORT_DRILLS = ("store-killed", "store-full", "pointer-deleted", "holder-fenced")
KIND = "patient"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with opened_bench(tmp_path_factory.mktemp("drills")) as opened:
        yield opened


def test_every_drill_has_its_name() -> None:
    """The drills of a module are found by importing it, in its order."""
    for module, name in ((store_outages, "store-killed"), (store_faults, "store-full"), (batch_faults, "batch-killed")):
        assert DRILLS[name].act.__module__ == module.__name__


@pytest.mark.parametrize("name", SHORT_DRILLS)
def test_a_drill_loses_nothing(bench: Bench, name: str) -> None:
    """Nothing is lost, and the last word is that it is still serving."""
    told: list[object] = []
    result = bench.perform(DRILLS[name], told.append, KIND)
    assert result.lost == ()
    assert result.passed
    assert told[-1] == STILL_SERVING
    assert result.asked > 0


def test_a_short_soak_answers_right(bench: Bench) -> None:
    """Under load and under too much of it, with promotions and bad requests: no error that was not asked for, and every
    answer is right for the snapshot that it names. Times are only told."""
    found, told = soak(bench.stage(KIND), SHORT, lambda _text: None)
    assert passed(told), [one for one in told if one.judged and not one.holds]
    assert all(phase["good"] > 0 for phase in found.values())


def test_what_is_lost_fails_the_drill(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """A score of another edition than the named snapshot's is lost: the table says so, and it is no pass."""

    def mistaken(scene: Scene) -> Iterator[str]:
        run = scene.stage.published()
        scene.stage.world.snapshots[run.manifest.snapshot] = run.edition + 1
        scene.judge([scene.stage.get("K1")])
        yield "the right scores are now other ones"

    told: list[object] = []
    drill = Drill(name="mistaken", done="nothing", act=mistaken, stage=KIND, refuses=False)
    result = bench.perform(drill, told.append)
    print_table(Console(width=200), [result])
    assert not result.passed
    assert any("K1" in one and "is wrong" in one for one in result.lost)
    assert as_json([result])["passed"] is False
    assert "FAILED" in capsys.readouterr().out
    assert STILL_SERVING not in told


def test_recovery_begins_when_nothing_is_refused_and_answers_are_as_before() -> None:
    """The first quarter of a second after the last refusal in which answers take about what they took before."""
    assert recovered_after([900.0, 40.0, 10.0, 10.0], last_refused=0.1, usual_ms=5) == 0.25
    assert recovered_after([10.0, 10.0, 10.0], last_refused=0.4, usual_ms=5) == 0.5
    assert recovered_after([900.0, -1.0], last_refused=0, usual_ms=5) is None
