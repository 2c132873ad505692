"""One process that answers on a socket that was opened before, with an end that loses nothing.

SIGTERM: ``/readyz`` says 503, answers ask their connections to close, and after the drain it listens no more, finishes
what is in flight and ends with 0. Ctrl-C, or a second signal, skips the drain; one more cuts what is in flight.
"""

import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import structlog
import uvicorn
from starlette.types import ASGIApp

from service.border import Border, allow_files
from service.protocol import HitProtocol
from service.runtime import Live, Service
from service.threads import settle_threads
from shared.clock import Clock, MonotonicClock
from shared.processes import INTERRUPTED
from shared.settings import ServiceSettings, Settings
from shared.telemetry import LibraryHandler, Logger, configure_logging

CLOSE = (b"connection", b"close")
ACCEPTS = 16
"""New connections that are taken in one turn of the event loop, which takes one for each handle of the socket
(libuv since 1.45): of many that come while turns are long, all but a few would wait for as long as that lasts."""

_log: Logger = structlog.get_logger()


def prepare(settings: Settings) -> None:
    """What a process settles once, before it loads anything: where its log goes, and its threads."""
    settle_threads(settings)
    handler = LibraryHandler(configure_logging(settings, sys.stderr))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def answer(
    app: ASGIApp, listener: socket.socket, settings: ServiceSettings, beat: Callable[[], object] = lambda: None
) -> int:
    """Answers until it is told to end, and returns the exit code. ``beat`` is called by the event loop, ten times a
    second, once the service is ready."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=HitProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=settings.flight_seconds,
    )
    allow_files(settings.max_connections)
    server = Server(config, settings.drain_seconds, MonotonicClock(), beat)
    server.run(sockets=taken_often(listener))
    return server.code


def taken_often(listener: socket.socket) -> list[socket.socket]:
    """The socket, and others that listen for it: as many connections are taken in one turn of the event loop."""
    listener.setblocking(False)  # a copy is made to block as the first does, and so would all the workers that share it
    return [listener, *(listener.dup() for _ in range(ACCEPTS - 1))]


class Server(uvicorn.Server):
    """uvicorn's server with a drain before its end, and without its habit of dying of the signal afterwards."""

    def __init__(
        self, config: uvicorn.Config, drain_seconds: float, clock: Clock, beat: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(config)
        self.code = 0
        self._drain_seconds = drain_seconds
        self._clock = clock
        self._beat = beat
        self._told = False
        self._leaves_at: float | None = None
        self._border: Border | None = getattr(config.app, "border", None)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn calls it
        """Hears a signal. What follows from it is done by the event loop, which it may have interrupted anywhere."""
        if sig == signal.SIGINT:
            self.code = INTERRUPTED
        if self.should_exit:
            self.force_exit = True
        elif self._told or sig == signal.SIGINT or not self.started:
            self.should_exit = True
        self._told = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if self._told and self._leaves_at is None:
            self._leaves_at = self._clock.now() + self._drain_seconds
            self._leave()
        if self._leaves_at is not None and self._clock.now() >= self._leaves_at:
            self.should_exit = True
        if isinstance(self._service.phase, Live):
            self._beat()
        if self._border is not None:
            ours = [one for one in self.server_state.connections if isinstance(one, HitProtocol)]
            self._border.tick(ours, self._clock.now())
        return await super().on_tick(counter)

    def _leave(self) -> None:
        """Not ready any more; and a connection that is kept alive would bring calls here to the end."""
        _log.info("stopping", drain_seconds=self._drain_seconds)
        self._service.stopping = True
        self.config.encoded_headers.append(CLOSE)
        self.server_state.default_headers.append(CLOSE)

    @property
    def _service(self) -> Service:
        service: Service = self.lifespan.state["service"]
        return service
