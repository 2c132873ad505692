"""Memory: of the store for one entity, and of the backfill as the table grows."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from redis import Redis

from benchmarks.batch import publish_into
from benchmarks.bench import Bench
from benchmarks.children import forescore, peak_mib
from benchmarks.results import Finding


def memory(bench: Bench) -> Iterator[Finding]:
    """What an empty store grows by, and the peak of ``forescore backfill`` over the two tables."""
    store = bench.new_store()
    before = _used(store)
    publish_into(bench, store)
    yield Finding(key="memory-store", value=(_used(store) - before) / bench.sizes.big_rows, note="ids of 9 characters")
    small, big = (_peak(bench, table) for table in (bench.small, bench.big))
    if small and big:
        note = f"{bench.sizes.big_rows:,} rows against {bench.sizes.small_rows:,}"
        yield Finding(key="memory-peak", value=big, reference=small, note=note)
    else:
        yield Finding(key="memory-peak", note="this system does not tell (no /proc)")


def _used(store: str) -> int:
    with Redis.from_url(store) as client:
        return int(cast("dict[str, int]", client.info("memory"))["used_memory"])


def _peak(bench: Bench, table: Path) -> float:
    """The whole command, publishing included, into a store of its own."""
    command = forescore("backfill", str(bench.bundle), str(table), "--out", str(bench.new("peak")))
    return peak_mib(command, **bench.settings(bench.new_store()))
