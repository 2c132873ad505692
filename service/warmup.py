"""Goes the ways of a hit and of a posted row before anybody asks: the first is to be as fast as the hundredth.

What is run is what requests run, on counters and lines of its own: no request is counted, and none is told.
"""

import asyncio
from dataclasses import replace
from typing import Any, NamedTuple, cast

import orjson
import uvicorn
from prometheus_client import CollectorRegistry
from starlette.types import Message, Receive, Scope, Send
from uvicorn.server import ServerState

from service.access import AccessLog
from service.batcher import Batcher, Limits, Threads
from service.direct import Direct
from service.exchange import MANY, ONE
from service.flight import Flights
from service.lane import FastLane
from service.lines import ERRORS, RequestLines
from service.protocol import HitProtocol
from service.runtime import Live, Service
from shared.bundle import GOLDEN, Bundle
from shared.errors import StoreError
from shared.layout import pack_scores
from shared.metrics import Metrics
from shared.snapshot import Absent, Active, Lost, SnapshotMeta
from shared.store.interfaces import Peeker, SnapshotReader

TIMES = 24
"""An interpreter makes up its mind about code that it has seen run several times."""
_NOBODY = b"x"
_REQUEST = b"GET /score/%b HTTP/1.1\r\nhost: x\r\n\r\n" % _NOBODY
_CONNECTIONS = 4


async def warm_up(service: Service, live: Live, threads: Threads) -> None:
    """Answers questions that nobody asked. The feature sources are not asked."""
    quiet = _quiet(service, live, threads)
    direct = AccessLog(Direct(quiet), metrics=quiet.metrics, clock=quiet.dependencies.monotonic, lines=quiet.lines)
    lane = FastLane(direct, direct, quiet)
    body = orjson.dumps({"items": [{"features": _golden_row(live.scorer.bundle)}]}, default=str)
    answers = True
    for _ in range(TIMES):
        answers = answers and await _look_up(live)
        await _ask(lane, "POST", MANY, body)
    if live.pointer.active is not None:
        await _hits(quiet, live, live.pointer.active)


def _quiet(service: Service, live: Live, threads: Threads) -> Service:
    """The same service, which counts for itself, writes no lines and nothing into the store."""
    metrics, clock = Metrics(CollectorRegistry()), service.dependencies.monotonic
    limits = service.settings.service
    rows = Batcher(
        live.scorer,
        threads,
        Limits(batch_rows=limits.max_batch, wait_seconds=0, queue_rows=limits.max_queue_rows),
        clock,
        metrics,
    )
    scoring = replace(live.desk.scoring, rows=rows, write_back=None, metrics=metrics)
    desk = replace(live.desk, scoring=scoring, flights=Flights(1, clock), metrics=metrics)
    return replace(
        service,
        metrics=metrics,
        lines=RequestLines(metrics, keep=ERRORS, route=ONE),
        phase=replace(live, rows=rows, desk=desk),
    )


async def _look_up(live: Live) -> bool:
    """Looks nobody up. Whether it is worth another try: a store that does not answer is left alone."""
    active = live.pointer.active
    if active is None:  # nothing is published yet
        return False
    heard = _Heard()
    try:
        await live.store.reader.peek(active.meta, _NOBODY)
        if live.store.reader.peek_for(active.meta, _NOBODY, heard):  # as hits are looked up
            await heard.done.wait()
    except StoreError:
        return False
    return True


class _Heard:
    """Waits for what the store says, and does not look at it."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    def found(self, value: bytes | Absent | Lost) -> None:  # noqa: ARG002 - of a ``Peeker``
        self.done.set()

    def failed(self) -> None:
        self.done.set()


async def _hits(quiet: Service, live: Live, active: Active) -> None:
    """Hits as they come in over a connection, each of a score that is made up."""
    value = pack_scores([0.5] * len(active.meta.columns), scored_at=0)
    known = replace(live, store=replace(live.store, reader=cast("SnapshotReader", _Known(value))))
    lane = FastLane(_nowhere, _nowhere, replace(quiet, phase=known))
    app = cast("Any", _Application(lane))
    config = uvicorn.Config(app, http=HitProtocol, ws="none", lifespan="off", log_config=None, access_log=False)
    state = ServerState()
    for _ in range(_CONNECTIONS):
        protocol = HitProtocol(config, state, {})
        protocol.connection_made(_Nowhere())
        for _ in range(TIMES // _CONNECTIONS):
            protocol.data_received(_REQUEST)
            await asyncio.sleep(0)  # until the turn in which it is answered is over
        protocol.connection_lost(None)


class _Known:
    """A reader that has one score for everybody."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def peek_for(self, meta: SnapshotMeta, entity_id: bytes, peeker: Peeker) -> bool:  # noqa: ARG002 - the reader's own
        peeker.found(self._value)
        return True


class _Application(NamedTuple):
    """What the protocol looks for in an application."""

    lane: FastLane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _nowhere(scope, receive, send)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None: ...


class _Nowhere(asyncio.Transport):
    """A connection to nobody."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...


async def _ask(lane: FastLane, method: str, path: str, body: bytes) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(_: Message) -> None: ...

    await lane(_scope(method, path), receive, send)


def _scope(method: str, path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "state": {},
    }


def _golden_row(bundle: Bundle) -> dict[str, object]:
    """The features of a row that the model is proved with."""
    from shared.golden import first_row  # noqa: PLC0415 - what reads tables is loaded with the scorer, not before

    return first_row(bundle.read(GOLDEN), bundle.schema)
