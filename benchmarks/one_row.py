"""The time of one row in process."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.children import ask
from benchmarks.results import Finding

COMPILED = "compiled"


def row(bench: Bench) -> Iterator[Finding]:
    """Encode and graph of one row, and the graph call alone. The bars are the compiled engine's."""
    found = ask("benchmarks.work.one_row", str(bench.bundle), str(bench.small), str(bench.sizes.calls))
    note, counts = f"engine: {found['engine']}", found["engine"] == COMPILED
    yield Finding(key="row-time", value=found["whole_us"], note=note, counts=counts)
    yield Finding(key="row-graph", value=found["whole_us"], reference=found["graph_us"], note=note, counts=counts)
