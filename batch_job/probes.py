"""The schedule's own port: ``/livez``, ``/readyz`` and ``/metrics``, from the standard library."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from socket import socket
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from batch_job.schedule_health import Health
from shared.errors import SettingsError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

MAX_CONNECTIONS = 8
SECONDS = 5.0
"""How long a caller may take with its request."""

_OK, _UNAVAILABLE, _NOT_FOUND = "200 OK", "503 Service Unavailable", "404 Not Found"
_NOT_ALLOWED = "405 Method Not Allowed"
_JSON = "application/json"


@contextmanager
def probes(health: Health, host: str, port: int) -> Iterator[str]:
    """Answers for the block, and yields the port's URL."""
    try:
        server = _Server((host, port), _Handler)
    except OSError as error:
        raise SettingsError(
            f"port {port} on {host}: {(error.strerror or str(error)).lower()}; choose another with "
            "FORESCORE_SCHEDULE__PORT, or 0 for a free one"
        ) from None
    server.set_app(application(health))
    thread = Thread(target=server.serve_forever, name="probes", kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def application(health: Health) -> "Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]":
    """The port as a WSGI application."""

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            status, kind, body = _NOT_ALLOWED, _JSON, b'{"status":"only GET"}'
        else:
            status, kind, body = _answer(environ["PATH_INFO"], health)
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return answer


def _answer(path: str, health: Health) -> tuple[str, str, bytes]:
    match path:
        case "/livez":
            return _OK, _JSON, b'{"status":"alive"}'
        case "/readyz" | "/healthz":
            ready, body = health.readiness()
            return (_OK if ready else _UNAVAILABLE), _JSON, orjson.dumps(body)
        case "/metrics":
            health.update()
            return _OK, CONTENT_TYPE_LATEST, generate_latest(health.metrics.registry)
    return _NOT_FOUND, _JSON, b'{"status":"try /livez, /readyz or /metrics"}'


class _Server(WSGIServer):
    """A thread for each connection, and a bounded number of them; more are turned away."""

    request_queue_size = 64

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._slots = BoundedSemaphore(MAX_CONNECTIONS)

    def server_bind(self) -> None:
        """As it was, without asking the network for the host's name, which may take long."""
        self.socket.bind(self.server_address)
        address = self.socket.getsockname()
        self.server_address = address
        self.server_name, self.server_port = address[0], address[1]
        self.setup_environ()

    def process_request(self, request: "socket | tuple[bytes, socket]", client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        Thread(target=self._process, args=(request, client_address), name="probe", daemon=True).start()

    def _process(self, request: "socket | tuple[bytes, socket]", client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            return  # the caller went away, or took too long
        finally:
            self.shutdown_request(request)
            self._slots.release()


class _Handler(WSGIRequestHandler):
    timeout = SECONDS

    def log_message(self, *_: object) -> None:
        """A probe every few seconds is no event."""

    def get_stderr(self) -> TextIO:
        return sys.stderr or StringIO()
