"""The bench itself, at its smallest: that it runs, and that each row has its numbers."""

from pathlib import Path

import pytest
from support.examples import built_once

from benchmarks.__main__ import main
from benchmarks.bars import BARS
from benchmarks.bits import LEFT_OUT
from benchmarks.results import Report

ABSENT = {"not installed", LEFT_OUT}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One run over everything."""
    folder = tmp_path_factory.mktemp("bench")
    bundle = built_once("telco_churn/train.py", tmp_path_factory.getbasetemp()).path
    out = folder / "out" / "bench.json"
    assert main(["--size", "tiny", "--bundle", str(bundle), "--json", str(out)]) == 0
    return Report.read(out)


def test_every_bar_has_its_row(report: Report) -> None:
    """The bars are the rows, in their order."""
    assert [row.key for row in report.rows] == [bar.key for bar in BARS]


def test_every_row_has_its_numbers(report: Report) -> None:
    """Each row has a value above nothing, and a reference where it is compared, or says what is not there."""
    for row in report.rows:
        if row.value is None:
            assert row.note in ABSENT, row
        elif not row.key.startswith("bits-"):
            assert row.value > 0, row
            assert row.ratio is None or row.ratio > 0, row


def test_no_score_differs(report: Report) -> None:
    """The bench's own check of bits runs with the engine that is always there, and finds none that differ."""
    (row,) = (row for row in report.rows if row.key == "bits-export")

    assert row.value == 0
    assert row.held


def test_the_report_says_where_it_was_measured(report: Report) -> None:
    """Processor, cores and versions are part of a result."""
    assert report.machine.cores > 0
    assert {"python", "torch", "valkey", "forescore"} <= report.machine.versions.keys()


def test_a_wrong_word_is_refused(tmp_path: Path) -> None:
    """A group that is not one of the bench's is an error of usage, and nothing is measured."""
    with pytest.raises(SystemExit):
        main(["--only", "speed", "--json", str(tmp_path / "bench.json")])

    assert not (tmp_path / "bench.json").exists()
