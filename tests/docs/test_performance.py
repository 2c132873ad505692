"""The numbers in the docs are those of the committed run."""

from pathlib import Path

import pytest

from benchmarks.charts import charts
from benchmarks.page import CHART_FOLDER, PAGE, README, texts, written
from benchmarks.places import RESULT
from benchmarks.results import Report


@pytest.fixture(scope="module")
def report() -> Report:
    return Report.read(RESULT)


@pytest.mark.parametrize("path", [PAGE, README], ids=lambda path: path.name)
def test_the_pages_tell_the_numbers_of_the_run(report: Report, path: Path) -> None:
    """docs/performance.md and the README say what docs/performance.json holds; ``make bench-docs`` writes all three."""
    assert written(path) == texts(report)[path]


def test_the_charts_draw_the_numbers_of_the_run(report: Report) -> None:
    """Each chart is the one that the run's numbers give."""
    drawn = charts(report)

    assert drawn
    for group, svg in drawn.items():
        assert (CHART_FOLDER / f"{group}.svg").read_text(encoding="utf-8") == svg
