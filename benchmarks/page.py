"""The numbers in the docs, from a run's JSON: ``python -m benchmarks.page`` writes them, a test holds them equal."""

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.charts import CHARTS, charts
from benchmarks.places import DOCS, RESULT, ROOT
from benchmarks.results import Report, Row, cells, number
from benchmarks.sizes import FULL

PAGE = DOCS / "performance.md"
README = ROOT / "README.md"
CHART_FOLDER = DOCS / "charts"
SHOWN = ("hit-naive", "miss-naive", "post-naive", "score-lesson", "publish-pipeline", "memory-store")
"""The rows that the README shows."""

_MARKED = re.compile(r"(<!-- from performance\.json -->\n\n)(.*?)(\n\n<!-- end -->)", re.DOTALL)
_HEAD = ("What", "Forescore", "Reference", "Ratio", "Bar", "")


def texts(report: Report) -> dict[Path, str]:
    """What each page must say between its marks."""
    return {PAGE: page(report), README: readme(report)}


def page(report: Report) -> str:
    """Every row, the charts, the notes and the machine."""
    lines = [_HEAD, ("---",) * len(_HEAD), *map(cells, report.rows)]
    drawn = charts(report)
    pictures = [f"![{CHARTS[group]}](charts/{group}.svg)" for group in drawn]
    notes = [f"- {row.what}: {row.note}" for row in report.rows if row.note and row.value is not None]
    return "\n\n".join(
        part for part in [_told(report), _grid(lines), *pictures, "\n".join(notes), _machine(report)] if part
    )


def readme(report: Report) -> str:
    """The rows that a newcomer wants."""
    rows = {row.key: row for row in report.rows}
    lines = [("What", "Forescore", "Beside it"), ("---",) * 3]
    lines += [(row.what, f"{number(row.value)} {row.unit}", _beside(row)) for key in SHOWN if (row := rows[key]).value]
    return f"{_told(report)}\n\n{_grid(lines)}"


def written(path: Path) -> str:
    """What a page says between its marks now."""
    return _found(path)[2]


def write(report: Report) -> None:
    """Writes pages and charts anew."""
    for path, text in texts(report).items():
        old = path.read_text(encoding="utf-8")
        path.write_text(_MARKED.sub(lambda found, text=text: f"{found[1]}{text}{found[3]}", old), encoding="utf-8")  # type: ignore[misc] # bound now
    CHART_FOLDER.mkdir(exist_ok=True)
    for group, drawn in charts(report).items():
        (CHART_FOLDER / f"{group}.svg").write_text(drawn, encoding="utf-8")


def _beside(row: Row) -> str:
    if row.ratio is None:
        return f"bar: {row.bar}"
    return f"{number(row.reference)} ({row.reference_name}): {row.ratio:.1f} times"


def _told(report: Report) -> str:
    held = sum(row.held for row in report.rows)
    size = "" if report.size == FULL.name else f" A *{report.size}* run: the bars are set for larger tables."
    return f"Measured on {report.measured_at[:10]}: {held} of {len(report.rows)} bars held.{size}"


def _machine(report: Report) -> str:
    facts = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return (
        f"{facts.processor}, {facts.cores} cores, {facts.memory_gib:g} GiB, {facts.system}; load average "
        f"{facts.load_average_start:g} at the start and {facts.load_average_end:g} at the end; requests by {facts.load}"
        f"; {versions}."
    )


def _grid(lines: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _found(path: Path) -> re.Match[str]:
    found = _MARKED.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise LookupError(f"{path.name} has lost its marks")
    return found


def main() -> None:
    write(Report.read(RESULT))


if __name__ == "__main__":
    main()
