"""``python -m drills.soak``: exit code 1 if anything that must hold did not."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from drills.bench import opened_bench
from drills.report import write_json
from drills.soak.soaking import Sizes, soak
from drills.soak.verdicts import as_json, passed, print_verdicts

OUT = Path(".forescore", "soak.json")


def main(arguments: Sequence[str]) -> int:
    """Soaks; the exit code."""
    options = _parsed(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    sizes = Sizes(steady=60 * options.minutes)
    with tempfile.TemporaryDirectory(prefix="forescore-soak-") as folder, opened_bench(Path(folder)) as bench:
        found, told = soak(bench.stage("compiled"), sizes, console.print)
    print_verdicts(console, found, told)
    write_json(options.json, as_json(found, told))
    console.print(f"{'all held' if passed(told) else 'NOT all held'}. Written to {options.json}")
    return 0 if passed(told) else 1


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m drills.soak", description="Minutes of load, and too much of it.")
    parser.add_argument("--minutes", type=float, default=10, help="at 70 %% of capacity (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=OUT, help="where the JSON is written (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
