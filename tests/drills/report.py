"""What drills found: a table for people, JSON for machines."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from drills.drill import Result

COLUMNS = ("drill", "what was done", "lost", "recovery", "answers", "refused", "verdict")
BEGIN, END = "<!-- table -->", "<!-- end -->"


def print_table(console: Console, results: Sequence[Result]) -> None:
    """One line for each drill."""
    table = Table(title="Drills")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in {"recovery", "answers", "refused"} else "left")
    for result in results:
        table.add_row(*cells(result))
    console.print(table)


def cells(result: Result) -> tuple[str, ...]:
    """A result as texts, in the order of the columns."""
    lost = "nothing" if not result.lost else f"{len(result.lost)}: {result.lost[0]}"
    recovery = "-" if result.recovery is None else f"{result.recovery:.2f} s"
    verdict = "still serving" if result.passed else "FAILED"
    return (result.name, result.done, lost, recovery, str(result.asked), str(result.refused), verdict)


def write_page(path: Path, results: Sequence[Result]) -> None:
    """Puts the results into a page, between its two marks."""
    head, _, rest = path.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    _, _, tail = rest.partition(END)
    lines = [" | ".join(line) for line in (COLUMNS, ["---"] * len(COLUMNS), *map(cells, results))]
    table = "".join(f"| {line} |\n" for line in lines)
    path.write_text(f"{head}{BEGIN}\n\n{table}\n{END}{tail}", encoding="utf-8")


def write_json(path: Path, found: object) -> None:
    """Writes what was found, for machines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")


def as_json(results: Sequence[Result]) -> dict[str, object]:
    return {"format": 1, "passed": all(one.passed for one in results), "drills": [asdict(one) for one in results]}
