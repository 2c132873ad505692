"""Start-up: the command's help, the service until it is ready, and its first answers."""

import http.client
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import orjson
import pyarrow.parquet as pq

from benchmarks import servers
from benchmarks.bench import Bench
from benchmarks.children import forescore, run
from benchmarks.customers import ENTITY, features_of
from benchmarks.errors import Broken
from benchmarks.results import Finding
from benchmarks.rounds import median, spread
from benchmarks.servers import HOST

_ASKED = 120
_HUNDREDTH = slice(80, 120)


def start(bench: Bench) -> Iterator[Finding]:
    """Each several times; what was compiled or read once is there, as on a host that has served before."""
    cold, starts = bench.sizes.cold_starts, bench.sizes.cold_starts + bench.sizes.starts
    helps = [run(forescore("--help")).seconds for _ in range(starts)][cold:]
    yield Finding(key="start-help", value=median(helps), spread=spread(helps))
    found = [_started(bench) for _ in range(starts)][cold:]
    seconds = [each[0] for each in found]
    yield Finding(key="start-serve", value=median(seconds), spread=spread(seconds))
    for key, spans in (("start-get", [each[1] for each in found]), ("start-post", [each[2] for each in found])):
        firsts = [each[0] for each in spans]
        hundredths = [median(each[_HUNDREDTH]) for each in spans]
        yield Finding(key=key, value=median(firsts), reference=median(hundredths), spread=spread(firsts))


def _started(bench: Bench) -> tuple[float, list[float], list[float]]:
    """Seconds until ready, and the milliseconds of the first cached and the first posted answers, one by one."""
    table = pq.read_table(bench.small).slice(0, _ASKED)
    gets = [("GET", f"/score/{entity}", None) for entity in table[ENTITY].to_pylist()]
    posts = [("POST", "/score", _body(row)) for row in features_of(table)]
    settings = bench.settings(bench.store)
    started = time.perf_counter()
    with servers.serve(bench.folder, bench.bundle, settings) as server:
        seconds = time.perf_counter() - started
        with _connected(bench.constant.port) as other:  # the client's own first calls are not what is measured
            _asked(other, [*gets, *posts])
        with _connected(server.port) as connection:
            return seconds, _asked(connection, gets), _asked(connection, posts)


@contextmanager
def _connected(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    connection.connect()
    with closing(connection):
        yield connection


def _asked(connection: http.client.HTTPConnection, requests: Sequence[tuple[str, str, bytes | None]]) -> list[float]:
    spans = []
    for method, path, body in requests:
        started = time.perf_counter()
        connection.request(method, path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        spans.append((time.perf_counter() - started) * 1000)
        if response.status != http.client.OK:
            raise Broken(f"{method} {path}: status {response.status}")
    return spans


def _body(row: dict[str, object]) -> bytes:
    return orjson.dumps({"items": [{"features": row}]})
