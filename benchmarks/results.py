"""What was found, as the table shows it and as the JSON keeps it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict

from benchmarks.bars import BARS, Bar, ratio

_FROZEN = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a measurement says of one bar. ``counts``: whether the bar may be held by it at all."""

    key: str
    value: float | None = None
    reference: float | None = None
    spread: float = 0.0
    note: str = ""
    counts: bool = True


class Row(BaseModel):
    """One line of the table. ``spread``: how far the rounds lie apart, as a share of their median."""

    model_config = _FROZEN

    key: str
    what: str
    unit: str
    value: float | None
    reference_name: str
    reference: float | None
    ratio: float | None
    spread: float
    bar: str
    held: bool
    note: str

    @classmethod
    def of(cls, bar: Bar, finding: Finding) -> Self:
        """Judges a finding by its bar."""
        value = finding.value
        return cls(
            key=bar.key,
            what=bar.what,
            unit=bar.unit,
            value=value,
            reference_name=bar.reference,
            reference=finding.reference,
            ratio=None if value is None else ratio(value, finding.reference),
            spread=finding.spread,
            bar=bar.text,
            held=finding.counts and value is not None and bar.holds(value, finding.reference),
            note=finding.note,
        )

    @property
    def verdict(self) -> str:
        return "held" if self.held else "not held"


class Machine(BaseModel):
    """Where it was measured."""

    model_config = _FROZEN

    processor: str
    cores: int
    memory_gib: float
    system: str
    versions: dict[str, str]
    load: str
    """What made the requests."""
    load_average_start: float
    load_average_end: float


class Report(BaseModel):
    """One run of the bench."""

    model_config = _FROZEN

    format: Literal[1] = 1
    size: str
    sizes: dict[str, float | str]
    measured_at: str
    seconds: float
    machine: Machine
    rows: tuple[Row, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The report of a JSON file."""
        return cls.model_validate_json(path.read_bytes())

    def write(self, path: Path) -> None:
        """Writes it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_INDENT_2) + b"\n")


def judged(findings: Iterable[Finding]) -> tuple[Row, ...]:
    """The findings in the order of the bars."""
    bars = {bar.key: bar for bar in BARS}
    places = {key: place for place, key in enumerate(bars)}
    rows = [Row.of(bars[finding.key], finding) for finding in findings]
    return tuple(sorted(rows, key=lambda row: places[row.key]))


HEAD = ("what", "value", "reference", "ratio", "bar", "")


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts, in the order of ``HEAD``."""
    reference = f"{number(row.reference)} ({row.reference_name})" if row.reference is not None else row.reference_name
    value = f"{number(row.value)} {row.unit}" if row.value is not None else row.note
    return (row.what, value, reference, "" if row.ratio is None else f"{row.ratio:.2f}", row.bar, row.verdict)


def number(value: float | None) -> str:
    """Three figures that count, with commas."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"  # noqa: PLR2004 - figures


def table(rows: Sequence[Row]) -> str:
    """The table for a terminal, with a line for each row that has more to say."""
    lines = [HEAD, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    texts.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"  {row.key}: {row.note}" for row in rows if row.note and row.value is not None]
    return "\n".join([*texts, "", *notes] if notes else texts)
