"""The end of one process: the server itself, in a thread, with a clock that moves as it is told."""

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

import httpx2
import pytest
import torch
import uvicorn
import uvloop
from support.publish import publish
from support.servers import wait_until
from support.services import opener, service_settings

from service.app import create_app
from service.runtime import Dependencies
from service.server import ACCEPTS, Server, taken_often
from shared.scorer import Scorer
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

DRAIN_SECONDS = 30.0
ROW = {"visits": 1, "returns": 0, "basket": 2}


@dataclass
class Running:
    """A server that answers, with what a signal would tell it."""

    server: Server
    client: httpx2.Client
    clock: FrozenClock
    thread: threading.Thread
    beats: list[bool]
    begun: list[int]

    def tell(self, number: signal.Signals) -> None:
        self.server.handle_exit(number, None)

    def readiness(self) -> str:
        status: str = self.client.get("/readyz").json()["status"]
        return status

    def has_ended(self) -> bool:
        return not self.thread.is_alive()

    @property
    def passes(self) -> int:
        """How many forward passes have begun."""
        return self.begun[0]


def ask_online(url: str) -> int:
    """One row to be scored, on a connection of its own."""
    return httpx2.post(f"{url}/score", json={"items": [{"features": ROW}]}, timeout=60).status_code


def is_open(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False


@pytest.fixture
def gate() -> threading.Event:
    """What each forward pass waits for; open from the start."""
    gate = threading.Event()
    gate.set()
    return gate


@pytest.fixture
def running(scorer: Scorer, memory: MemoryStore, gate: threading.Event) -> Iterator[Running]:
    publish(memory.store, scorer, {"a": ROW})
    begun = [0]

    def gated(*inputs: torch.Tensor) -> torch.Tensor:
        begun[0] += 1
        assert gate.wait(60)
        return scorer.forward(*inputs)

    held = replace(scorer, forward=gated)
    dependencies = Dependencies(open_scorer=lambda _bundle, _settings: held, open_store=opener(memory))
    app = create_app(service_settings(scorer), dependencies=dependencies)
    clock, beats = FrozenClock(), list[bool]()
    config = uvicorn.Config(app, lifespan="on", log_config=None, timeout_graceful_shutdown=20)
    server = Server(config, DRAIN_SECONDS, clock, lambda: beats.append(True))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        with httpx2.Client(base_url=address, timeout=30) as client:
            wait_until(lambda: client.get("/readyz").status_code == 200, 60)
            yield Running(server, client, clock, thread, beats, begun)
        server.should_exit = server.force_exit = True
        thread.join(timeout=30)


def test_sigterm_says_first_that_it_leaves(running: Running) -> None:
    """Not ready and alive: score calls are answered as before, and each connection is asked to close."""
    assert "connection" not in running.client.get("/score/a").headers
    running.tell(signal.SIGTERM)
    wait_until(lambda: running.readiness() == "stopping")
    readiness, score = running.client.get("/readyz"), running.client.get("/score/a")
    assert (readiness.status_code, running.client.get("/livez").status_code) == (503, 200)
    assert (score.status_code, score.headers["connection"]) == (200, "close")
    assert not running.has_ended()


def test_after_the_drain_it_ends_with_zero(running: Running) -> None:
    """As it was told to: neither an error nor the signal is how it ends."""
    running.tell(signal.SIGTERM)
    wait_until(lambda: running.readiness() == "stopping")
    running.clock.advance(DRAIN_SECONDS)
    wait_until(running.has_ended, 30)
    assert running.server.code == 0


@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGINT], 130), ([signal.SIGTERM, signal.SIGTERM], 0), ([signal.SIGTERM, signal.SIGINT], 130)],
)
def test_haste_skips_the_drain(running: Running, signals: list[signal.Signals], code: int) -> None:
    """Ctrl-C, or a second signal: somebody waits for it to end."""
    for number in signals:
        running.tell(number)
    wait_until(running.has_ended, 30)
    assert running.server.code == code


def test_it_tells_again_and_again_that_its_loop_runs(running: Running) -> None:
    """Whoever started it hears of it as long as it is there."""
    heard = len(running.beats)
    wait_until(lambda: len(running.beats) > heard + 2)


def test_what_is_in_flight_is_finished(running: Running, gate: threading.Event) -> None:
    """A call that is at work when the server stops listening gets its answer; nobody new gets in."""
    gate.clear()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask_online, str(running.client.base_url))
        wait_until(lambda: running.passes == 1)
        running.tell(signal.SIGINT)
        wait_until(lambda: not is_open(running.client.base_url.port or 0))
        assert not call.done()
        gate.set()
        assert call.result(30) == 200
    wait_until(running.has_ended, 30)


def test_probes_do_not_queue_behind_scores(running: Running, gate: threading.Event) -> None:
    """With a forward pass that does not end and 40 calls that wait for it, /livez is answered within 100 ms."""
    gate.clear()
    with ThreadPoolExecutor(40) as pool:
        calls = [pool.submit(ask_online, str(running.client.base_url)) for _ in range(40)]
        wait_until(lambda: "forescore_queue_rows 39.0" in running.client.get("/metrics").text, 30)
        probes = [running.client.get("/livez") for _ in range(20)]
        assert {probe.status_code for probe in probes} == {200}
        assert min(probe.elapsed for probe in probes).total_seconds() < 0.1
        gate.set()
        assert [call.result(30) for call in calls] == [200] * 40


def test_a_crowd_is_let_in_within_a_few_turns() -> None:
    """Connections that came while a turn was long do not wait for one turn each."""
    crowd, made, turns = 8 * ACCEPTS, [0], [0]

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made[0] += 1
            transport.abort()  # type: ignore[attr-defined] # uvloop's are no subclass of asyncio's

    async def let_in(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Door, sock=one) for one in taken_often(listener)]
        while made[0] < crowd:
            turns[0] += 1
            await asyncio.sleep(0)
        for server in servers:
            server.close()
            await server.wait_closed()

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=2 * crowd))
        for _ in range(crowd):
            stack.enter_context(socket.create_connection(listener.getsockname(), timeout=30))
        uvloop.run(let_in(listener))
    assert turns[0] < crowd / 2
