"""``python -m benchmarks``: runs the product and its references side by side, prints one table, writes JSON.

Exit code 0 if it ran, whatever the bars say; 1 if something is broken: a wrong bit, an error for an answer.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.answers import hit, miss, post
from benchmarks.bars import GROUPS
from benchmarks.batch import publish, score
from benchmarks.bench import Bench, load_average
from benchmarks.bits import bits
from benchmarks.errors import Broken
from benchmarks.machine import machine
from benchmarks.memory import memory
from benchmarks.one_row import row
from benchmarks.results import Finding, Report, judged, table
from benchmarks.sizes import FULL, SIZES, Sizes
from benchmarks.starting import start

OUT = Path(".forescore", "bench.json")
MEASUREMENTS: Mapping[str, Callable[[Bench], Iterator[Finding]]] = {
    "hit": hit,
    "miss": miss,
    "post": post,
    "row": row,
    "score": score,
    "publish": publish,
    "memory": memory,
    "bits": bits,
    "start": start,
}

TOGETHER = frozenset({"hit", "miss", "post"})
"""What is measured while the servers of all of them are up. Everything else is measured without: some of the references
look about when they have nothing to do, and tables are scored and published with all cores."""


def main(arguments: Sequence[str]) -> int:
    """Runs the bench; the exit code."""
    options = _parsed(arguments)
    sizes = SIZES["quick" if options.quick else options.size]
    try:
        report = run(sizes, options.only, options.bundle)
    except Broken as error:
        print(f"broken: {error}", file=sys.stderr)
        return 1
    report.write(options.json)
    print(f"\n{table(report.rows)}\n\n{_closing(report, options.json)}")
    return int(any(each.key.startswith("bits-") and each.value for each in report.rows))


def run(sizes: Sizes, groups: Sequence[str], bundle: Path | None = None) -> Report:
    """Measures the groups. Broken at the first wrong answer."""
    started, load = time.monotonic(), load_average()
    with tempfile.TemporaryDirectory(prefix="forescore-bench-") as folder, ExitStack() as stack:
        bench = Bench(Path(folder), sizes, stack, bundle)
        findings = [finding for group in groups for finding in _measured(group, bench)]
    return Report(
        size=sizes.name,
        sizes=asdict(sizes),
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - started, 1),
        machine=machine(load),
        rows=judged(findings),
    )


def _measured(group: str, bench: Bench) -> Iterator[Finding]:
    print(f"measuring: {group}", file=sys.stderr, flush=True)
    if group not in TOGETHER:
        bench.rest()
    yield from MEASUREMENTS[group](bench)


def _closing(report: Report, path: Path) -> str:
    held, facts = sum(each.held for each in report.rows), report.machine
    size = "" if report.size == FULL.name else f" This was a {report.size} run: the bars are set for a full one."
    return (
        f"{held} of {len(report.rows)} bars held, in {report.seconds:.0f} s.{size}\n"
        f"{facts.processor}, {facts.cores} cores; load average {facts.load_average_start} at the start, "
        f"{facts.load_average_end} at the end; requests by {facts.load}. Written to {path}"
    )


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measures Forescore beside its references."
    )
    parser.add_argument("--quick", action="store_true", help="smaller tables and shorter rounds: two or three minutes")
    parser.add_argument("--size", choices=SIZES, default=FULL.name, help="how much is done (default: %(default)s)")
    parser.add_argument(
        "--only", type=_groups, default=GROUPS, metavar="GROUP,...", help=f"some of {', '.join(GROUPS)}"
    )
    parser.add_argument(
        "--bundle", type=lambda text: Path(text).resolve(), help="the example's bundle, if it was built before"
    )
    parser.add_argument("--json", type=Path, default=OUT, help="where the JSON is written (default: %(default)s)")
    return parser.parse_args(arguments)


def _groups(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    if unknown := set(wanted) - set(GROUPS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: not one of {', '.join(GROUPS)}")
    return wanted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
