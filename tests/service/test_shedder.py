"""What is too much is refused where the bytes come in: real connections, with the fast lane and without it the same."""

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import orjson
import pytest
import torch
import uvicorn
from support.publish import publish
from support.servers import wait_until
from support.services import opener, service_settings

from service.app import Application, create_app
from service.exchange import ONE
from service.pressure import UNBOUNDED, Pressure
from service.protocol import HitProtocol
from service.runtime import Dependencies
from service.server import Server
from shared.clock import MonotonicClock
from shared.scorer import Scorer
from shared.snapshot import SnapshotMeta
from shared.store.interfaces import Peeker
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

ROW = b'{"visits": 1, "returns": 0, "basket": 2}'
tasks: list["asyncio.Task[None]"] = []
LIST = b'{"items": [{"features": %b}]}' % ROW
OF_A_REQUEST = re.compile(rb"(?<=date: )[^\r]+|(?<=x-request-id: )[0-9a-f]+|(?<=:request:)[0-9a-f]+")


@dataclass
class Running:
    """A server in a thread of this process, whose forward passes wait for ``gate``. Its loop is never late."""

    app: Application
    server: Server
    port: int
    gate: threading.Event

    @property
    def pressure(self) -> Pressure:
        assert self.app.shedder is not None
        return self.app.shedder.pressure

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def exchange(self, sent: bytes, answers: int = 1) -> bytes:
        with self.connect() as connection:
            connection.sendall(sent)
            return received(connection, answers)

    def is_empty(self) -> bool:
        return self.pressure.in_work == 0


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "framework"])
def running(request: pytest.FixtureRequest, scorer: Scorer) -> Iterator[Running]:
    with serving(scorer, fast=request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def restored(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test leaves it unbounded, with nothing in work."""
    yield
    if "running" in request.fixturenames:
        running: Running = request.getfixturevalue("running")
        running.gate.set()
        running.pressure.limit = UNBOUNDED
        wait_until(running.is_empty)


@contextmanager
def serving(scorer: Scorer, *, fast: bool, peeks: bool = False) -> Iterator[Running]:
    """``peeks``: what is looked up is told later, as a real store does."""
    memory, gate = MemoryStore("purchase"), threading.Event()
    if peeks:
        memory.async_store.reader.peek_for = partial(peek_later, memory)  # type: ignore[method-assign]
    gate.set()
    publish(memory.store, scorer, {"a": {"visits": 1, "returns": 0, "basket": 2}})

    def gated(*inputs: torch.Tensor) -> torch.Tensor:
        assert gate.wait(60)
        return scorer.forward(*inputs)

    held = replace(scorer, forward=gated)
    needs = Dependencies(
        open_scorer=lambda _bundle, _settings: held, open_store=opener(memory), monotonic=FrozenClock()
    )
    app = create_app(service_settings(scorer, fast_lane=fast), dependencies=needs)
    assert isinstance(app, Application)
    config = uvicorn.Config(app, http=HitProtocol, lifespan="on", log_config=None, server_header=False)
    server = Server(config, 0, MonotonicClock())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running = Running(app, server, listener.getsockname()[1], gate)
        wait_until(lambda: running.exchange(ask("/readyz")).startswith(b"HTTP/1.1 200"), 60)
        yield running
        server.should_exit = server.force_exit = True
        thread.join(timeout=30)


def peek_later(memory: MemoryStore, meta: SnapshotMeta, entity_id: bytes, peeker: Peeker) -> bool:
    async def peek() -> None:
        peeker.found(await memory.async_store.reader.peek(meta, entity_id))

    tasks.append(asyncio.get_running_loop().create_task(peek()))
    return True


def ask(path: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    length = [f"content-length: {len(body)}"] if body else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: x", *headers, *length, "", ""]).encode() + body


def received(connection: socket.socket, answers: int = 1) -> bytes:
    """All that comes until so many answers are there, or the connection ends."""
    found = b""
    while len(split(found)) < answers and (more := connection.recv(65_536)):
        found += more
    return found


def split(found: bytes) -> list[bytes]:
    """The whole answers in it."""
    answers = []
    while True:
        head, end, rest = found.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: ([0-9]+)", head)
        size = int(length[1]) if length is not None else 0
        if not end or len(rest) < size:
            return answers
        answers.append(head + end + rest[:size])
        found = rest[size:]


def statuses(found: bytes) -> list[int]:
    return [int(answer.split()[1]) for answer in split(found)]


REFUSED = [
    ask("/score/a"),
    ask("/score/nobody"),
    ask("/score", method="POST", body=LIST),
    ask("/score", method="POST", body=b'{"items": [{"entity_id": "a"}, {"entity_id": "b"}]}'),
    ask("/features/a", method="PUT", body=b"{}"),
    ask("/model"),
    ask("/nothing"),
]


def test_all_ways_refuse_with_the_same_bytes(scorer: Scorer) -> None:
    """Whatever is asked, with the lane and without: but for the request's id, it is one answer. Probes are never
    refused."""
    told = set()
    for fast in (True, False):
        with serving(scorer, fast=fast) as running:
            running.pressure.limit = 0
            told |= {OF_A_REQUEST.sub(b"N", running.exchange(sent)) for sent in REFUSED}
            probes = [running.exchange(ask(path)) for path in ("/livez", "/readyz", "/healthz", "/metrics")]
    assert [statuses(probe) for probe in probes] == [[200]] * 4
    (answer,) = told
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert set(head.split(b"\r\n")) >= {
        b"retry-after: 1",
        b"content-type: application/problem+json",
        b"cache-control: no-store",
        b"x-request-id: N",
    }
    assert orjson.loads(body) == {
        "type": "urn:forescore:problem:overloaded",
        "title": "Overloaded",
        "status": 503,
        "detail": "more is asked than can be answered in time; try again later",
        "instance": "urn:forescore:request:N",
    }


def test_hits_are_spared(scorer: Scorer) -> None:
    """Whatever is refused, who is found in the snapshot is answered, and takes up no room; who is not found is refused
    then, and has one line."""
    with serving(scorer, fast=True, peeks=True) as running:
        running.pressure.limit = 0
        asked = [ask("/score/a"), ask("/score/nobody"), ask("/score/a"), ask("/score/nobody"), ask("/score/a")]
        with running.connect() as connection:
            told = []
            for one in asked:
                connection.sendall(one)
                told += statuses(received(connection))
        assert told == [200, 503, 200, 503, 200]
        assert running.is_empty()
        wait_until(lambda: metric(running, f'forescore_requests_total{{route="{ONE}",status="503"}}') == 2)
        running.pressure.limit = 1
        assert statuses(running.exchange(ask("/score/nobody"))) == [404]
        wait_until(running.is_empty)


def test_what_is_in_work_leaves_room_when_it_is_answered(running: Running) -> None:
    """As many as the bound says are in work; one more is refused; when one is answered, the next is let in."""
    running.gate.clear()
    running.pressure.limit = 2
    with ExitStack() as stack:
        waiting = [stack.enter_context(running.connect()) for _ in range(2)]
        for connection in waiting:
            connection.sendall(ask("/score", method="POST", body=LIST))
        wait_until(lambda: running.pressure.in_work == 2)
        assert statuses(running.exchange(ask("/score/a"))) == [503]
        running.gate.set()
        assert [statuses(received(connection)) for connection in waiting] == [[200], [200]]
    wait_until(running.is_empty)
    assert statuses(running.exchange(ask("/score/a"))) == [200]


def test_who_leaves_takes_up_no_room(running: Running) -> None:
    """A caller who is gone before he is answered is not counted any more, nor counted down twice once he would be."""
    running.gate.clear()
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(running.connect()).sendall(ask("/score", method="POST", body=LIST))
        wait_until(lambda: running.pressure.in_work == 5)
    wait_until(running.is_empty)
    running.gate.set()
    assert statuses(running.exchange(ask("/score", method="POST", body=LIST))) == [200]
    wait_until(running.is_empty)


def test_each_of_many_on_one_connection_is_counted(running: Running) -> None:
    """Answered in order, refused in between or not, with their bodies or without: nothing stays in work."""
    sent = (ask("/score/a") + ask("/score", method="POST", body=LIST) + ask("/livez") + ask("/nothing")) * 10
    assert statuses(running.exchange(sent, 40)) == [200, 200, 200, 404] * 10
    wait_until(running.is_empty)
    running.pressure.limit = 0
    assert statuses(running.exchange(sent, 40)) == [503, 503, 200, 503] * 10
    wait_until(running.is_empty)


def test_hundreds_behind_one_that_waits_are_refused_in_their_order(running: Running) -> None:
    """The ones that came behind it are refused when it is answered: their number harms nobody."""
    running.gate.clear()
    with running.connect() as connection:
        connection.sendall(ask("/score", method="POST", body=LIST))
        wait_until(lambda: running.pressure.in_work == 1)
        connection.sendall(ask("/score/a") * 500)
        assert statuses(running.exchange(ask("/livez"))) == [200]
        running.pressure.limit = 0
        running.gate.set()
        assert statuses(received(connection, 501)) == [200] + [503] * 500


def test_a_body_that_was_announced_is_not_waited_for(running: Running) -> None:
    """Who asks whether he may send his body is told, and the connection ends: nobody knows whether it comes."""
    running.pressure.limit = 0
    answer = running.exchange(ask("/score", "expect: 100-continue", method="POST", body=LIST)[: -len(LIST)])
    assert statuses(answer) == [503]
    assert b"\r\nconnection: close\r\n" in answer


def test_a_refusal_to_head_has_no_body(running: Running) -> None:
    """The next answer on its connection begins where its head ends."""
    running.pressure.limit = 0
    found = b""
    with running.connect() as connection:
        connection.sendall(ask("/score/a", method="HEAD") + ask("/livez"))
        while b"alive" not in found and (more := connection.recv(65_536)):
            found += more
    head, _, rest = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert rest.startswith(b"HTTP/1.1 200 ")


def test_refusals_are_counted(running: Running) -> None:
    """By their route, as any answered request is."""
    running.pressure.limit = 0
    before = metric(running, 'forescore_requests_total{route="/model",status="503"}')
    running.exchange(ask("/model") * 3, 3)
    wait_until(lambda: metric(running, 'forescore_requests_total{route="/model",status="503"}') == before + 3)


def metric(running: Running, name: str) -> float:
    found = re.search(re.escape(name) + r" ([0-9.]+)", running.exchange(ask("/metrics")).decode())
    return 0.0 if found is None else float(found[1])
