"""Bits: the scores of the batch job, read from the store, and those that the service computes for the same rows.

Both are asked for over HTTP from ``forescore serve``. A score is written as the shortest decimal of its float32, so
that equal texts are equal bits. A rejected row must be rejected on both sides for the same reason.
"""

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import servers
from benchmarks.answers import engine_of
from benchmarks.bench import PATIENT, Bench
from benchmarks.children import forescore, run
from benchmarks.customers import ENTITY, features_of, originals, random_rows
from benchmarks.errors import Broken
from benchmarks.results import Finding
from benchmarks.servers import HOST, Server

ENGINES = ("export", "compiled")
LEFT_OUT = "left out at this size"
_SLABS = (1, 7, 250, 1000)
"""How many rows are asked for at once, in turns: a row's bits must not depend on its company."""


def bits(bench: Bench) -> Iterator[Finding]:
    """All customers of the example and random rows, with each engine."""
    table = pa.concat_tables(
        [originals().slice(0, bench.sizes.customers), random_rows(bench.sizes.random_rows, seed=5, prefix="R")]
    )
    path = bench.folder / "bits.parquet"
    pq.write_table(table, path)
    for engine in ENGINES:
        if engine == "compiled" and not bench.sizes.compiles:
            yield Finding(key=f"bits-{engine}", note=LEFT_OUT)
        else:
            yield _compared(bench, engine, path, table)


def _compared(bench: Bench, engine: str, path: Path, table: pa.Table) -> Finding:
    key = f"bits-{engine}"
    with ExitStack() as stack:
        store = stack.enter_context(servers.valkey(bench.folder))
        # nothing is timed here, so nothing need be late
        settings = bench.settings(store) | PATIENT | {"FORESCORE_ENGINE": engine}
        server = stack.enter_context(servers.serve(bench.folder, bench.bundle, settings))
        if (found := engine_of(server)) != engine:
            return Finding(key=key, note=f"not there: the service runs {found}")
        out = str(bench.new(key))
        command = forescore("backfill", str(bench.bundle), str(path), "--out", out, "--max-rejected", "100%")
        run(command, **settings)
        differing, rejected = compare(server, table)
    note = f"{len(table):,} rows, {rejected:,} of them rejected, alike on both sides"
    return Finding(key=key, value=differing, note=note)


def compare(server: Server, table: pa.Table) -> tuple[int, int]:
    """How many rows differ, and how many are rejected on both sides."""
    ids, rows = table[ENTITY].to_pylist(), list(features_of(table))
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    differing = rejected = start = 0
    sizes = cycle(_SLABS)
    while start < len(ids):
        stop = start + next(sizes)
        cached = _asked(connection, [{"entity_id": entity} for entity in ids[start:stop]])
        online = _asked(connection, [{"features": row} for row in rows[start:stop]])
        _require_sources(cached, online)
        told = [(_outcome(one), _outcome(other)) for one, other in zip(cached, online, strict=True)]
        differing += sum(one != other for one, other in told)
        rejected += sum(
            one == other and "scores" not in result for (one, other), result in zip(told, cached, strict=True)
        )
        start = stop
    connection.close()
    return differing, rejected


def _asked(connection: http.client.HTTPConnection, items: Sequence[object]) -> list[dict[str, Any]]:
    connection.request("POST", "/score", orjson.dumps({"items": items}), {"content-type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    if response.status != http.client.OK:
        raise Broken(f"POST /score: status {response.status}: {text[:300].decode(errors='replace')}")
    results: list[dict[str, Any]] = json.loads(text, parse_float=str)["results"]  # the text itself is compared
    return results


def _require_sources(cached: Sequence[dict[str, Any]], online: Sequence[dict[str, Any]]) -> None:
    for results, source in ((cached, "cache"), (online, "online")):
        if any(result.get("source", source) != source for result in results):
            raise Broken(f"an answer did not come from where it should: {source}")


def _outcome(result: dict[str, Any]) -> object:
    """The score as it is written, or why there is none."""
    if "scores" in result:
        return result["scores"]
    error = result["error"]
    return error.get("status"), error.get("code"), error.get("field")
