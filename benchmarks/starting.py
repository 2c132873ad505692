"""Start-up: the command's help, the service until it is ready, and its first answers."""

import http.client
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

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

Request = tuple[str, str, bytes | None]
_HUNDREDTH = slice(95, 105)
_PAUSE_SECONDS = 0.1


def start(bench: Bench) -> Iterator[Finding]:
    """Each several times; what was compiled or read once is there, as on a host that has served before."""
    cold, starts = bench.sizes.cold_starts, bench.sizes.cold_starts + bench.sizes.starts
    helps = [run(forescore("--help")).seconds for _ in range(starts)][cold:]
    yield Finding(key="start-help", value=median(helps), spread=spread(helps))
    found = [_started(bench) for _ in range(starts)][cold:]
    seconds = [each[0] for each in found]
    yield Finding(key="start-serve", value=median(seconds), spread=spread(seconds))
    for number, key in enumerate(("start-get", "start-post"), 1):
        firsts, hundredths = zip(*(each[number] for each in found), strict=True)
        yield Finding(
            key=key,
            value=median(firsts),
            reference=median(hundredths),
            spread=spread(firsts),
            note="each over a new connection and after a pause",
        )


def _started(bench: Bench) -> tuple[float, tuple[float, float], tuple[float, float]]:
    """Seconds until ready, and the milliseconds of the first and the hundredth answer, cached and posted."""
    table = pq.read_table(bench.small).slice(0, _HUNDREDTH.stop)
    gets = [("GET", f"/score/{entity}", None) for entity in table[ENTITY].to_pylist()]
    posts = [("POST", "/score", _body(row)) for row in features_of(table)]
    settings = bench.settings(bench.store)
    started = time.perf_counter()
    with servers.serve(bench.folder, bench.bundle, settings) as server:
        seconds = time.perf_counter() - started
        for requests in (gets, posts):
            _first_and_hundredth(bench.constant.port, requests)  # the client's own first calls are not what is measured
        return seconds, _first_and_hundredth(server.port, gets), _first_and_hundredth(server.port, posts)


def _first_and_hundredth(port: int, requests: Sequence[Request]) -> tuple[float, float]:
    """Both are asked alike: over a new connection, after a pause. That alone makes a server that has run for long take
    three times as long for a constant, so that a hundredth of a busy connection would be no reference for the first."""
    first = _milliseconds(port, requests[0], pause=_PAUSE_SECONDS)
    for request in requests[1 : _HUNDREDTH.start]:
        _milliseconds(port, request)
    return first, median([_milliseconds(port, request, pause=_PAUSE_SECONDS) for request in requests[_HUNDREDTH]])


def _milliseconds(port: int, request: Request, *, pause: float = 0.0) -> float:
    time.sleep(pause)  # the pause is what both answers come after
    method, path, body = request
    with closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
        connection.connect()
        started = time.perf_counter()
        connection.request(method, path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        milliseconds = (time.perf_counter() - started) * 1000
    if response.status != http.client.OK:
        raise Broken(f"{method} {path}: status {response.status}")
    return milliseconds


def _body(row: dict[str, object]) -> bytes:
    return orjson.dumps({"items": [{"features": row}]})
