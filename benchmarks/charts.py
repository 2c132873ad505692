"""Bar charts as SVG, written by hand: a file that any browser and any page of a repository shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from benchmarks.bars import BARS
from benchmarks.results import Report, Row, number

OURS = "Forescore"
CHARTS = {
    "hit": "GET of a cached score, answers a second",
    "miss": "GET of an unseen entity, answers a second",
    "post": "POST of one row's features, answers a second",
    "score": "Scoring a table, rows a second",
    "publish": "Publishing the scores, entities a second",
}
"""A chart for each group of rates."""

_WIDTH, _LEFT, _RIGHT, _LINE, _TOP = 720, 200, 90, 30, 44
_STYLE = "font-family: system-ui, sans-serif; font-size: 13px; fill: #24292f"
_COLOURS = {True: "#1f6feb", False: "#8c959f"}


@dataclass(frozen=True, slots=True)
class Stroke:
    """One bar of a chart."""

    label: str
    value: float

    @property
    def ours(self) -> bool:
        return self.label == OURS


def charts(report: Report) -> dict[str, str]:
    """The SVG of each group that has numbers, by the group's name."""
    drawn = {group: strokes(report, group) for group in CHARTS}
    return {group: chart(CHARTS[group], found) for group, found in drawn.items() if found}


def strokes(report: Report, group: str) -> list[Stroke]:
    """The product's rate, and below it that of each reference."""
    keys = {bar.key for bar in BARS if bar.group == group and bar.unit.endswith("/s")}
    rows = [row for row in report.rows if row.key in keys and row.value is not None and row.reference is not None]
    return (
        [Stroke(OURS, _value(rows[0])), *(Stroke(row.reference_name, row.reference or 0) for row in rows)]
        if rows
        else []
    )


def chart(title: str, strokes: Sequence[Stroke]) -> str:
    """Horizontal bars, the longest across the whole width."""
    height = _TOP + _LINE * len(strokes) + 10
    longest = max(stroke.value for stroke in strokes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="16" y="26" style="{_STYLE}; font-weight: 600">{escape(title)}</text>',
        *(line for place, stroke in enumerate(strokes) for line in _drawn(stroke, place, longest)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _drawn(stroke: Stroke, place: int, longest: float) -> list[str]:
    top = _TOP + place * _LINE
    width = max(1.0, (_WIDTH - _LEFT - _RIGHT) * stroke.value / longest)
    weight = "; font-weight: 600" if stroke.ours else ""
    style, base = f"{_STYLE}{weight}", top + 14
    return [
        f'<text x="{_LEFT - 10}" y="{base}" text-anchor="end" style="{style}">{escape(stroke.label)}</text>',
        f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="20" rx="2" fill="{_COLOURS[stroke.ours]}"/>',
        f'<text x="{_LEFT + width + 8:.1f}" y="{base}" style="{style}">{number(stroke.value)}</text>',
    ]


def _value(row: Row) -> float:
    return row.value or 0.0
