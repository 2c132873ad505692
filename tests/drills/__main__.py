"""``python -m drills``: does the drills, tells each step, and ends with one table. Exit code 1 if anything was lost."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from drills import (
    batch_faults,
    disk_faults,
    load_drills,
    schedule_faults,
    store_faults,
    store_outages,
    wire_faults,
    worker_faults,
)
from drills.bench import opened_bench
from drills.drill import DRILLS, Drill
from drills.report import as_json, print_table, write_json, write_page

OUT = Path(".forescore", "drills.json")
MODULES = (
    store_outages,
    store_faults,
    batch_faults,
    disk_faults,
    load_drills,
    schedule_faults,
    wire_faults,
    worker_faults,
)
"""Importing them is what fills ``DRILLS``."""


def main(arguments: Sequence[str]) -> int:
    """Does the drills that were asked for; the exit code."""
    options = _parsed(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    with tempfile.TemporaryDirectory(prefix="forescore-drills-") as folder, opened_bench(Path(folder)) as bench:
        results = []
        for drill in options.only:
            console.print(f"[bold]{drill.name}[/bold]: {drill.done}")
            results.append(bench.perform(drill, lambda step: console.print(f"  {step}", markup=False)))
            write_json(options.json, as_json(results))  # each time: what was found outlives an interruption
    print_table(console, results)
    if options.page is not None:
        write_page(options.page, results)
    failed = [result.name for result in results if not result.passed]
    console.print(
        f"{len(results) - len(failed)} of {len(results)} still serving, nothing lost. Written to {options.json}"
    )
    return 1 if failed else 0


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m drills", description="Does faults to real processes.")
    every = list(DRILLS.values())
    parser.add_argument("--only", type=_drills, default=every, metavar="NAME,...", help=f"some of {', '.join(DRILLS)}")
    parser.add_argument("--json", type=Path, default=OUT, help="where the JSON is written (default: %(default)s)")
    parser.add_argument("--page", type=Path, help="a page whose table is written anew")
    return parser.parse_args(arguments)


def _drills(text: str) -> list[Drill]:
    wanted = text.split(",")
    if unknown := [name for name in wanted if name not in DRILLS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: no such drill")
    return [DRILLS[name] for name in wanted]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
