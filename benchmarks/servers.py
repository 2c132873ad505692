"""Processes that listen, until the bench is done with them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.children import environment, forescore
from benchmarks.errors import Broken
from benchmarks.places import ROOT
from shared.embedded import valkey_binary

HOST = "127.0.0.1"
_PATIENCE_SECONDS = 600
"""A server that ends by itself is found at once; one that is only slow on a busy machine is waited for."""
_POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Server:
    """A process that answers on a port of this machine."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


@contextmanager
def valkey(folder: Path) -> Iterator[str]:
    """A server that keeps nothing on disk; yields its URL."""
    port = _free_port()
    options = {"port": str(port), "bind": HOST, "dir": str(folder), "save": "", "appendonly": "no"}
    command = [str(valkey_binary()), *(text for name, value in options.items() for text in (f"--{name}", value))]
    with _running(command, folder / f"valkey-{port}.log", {}) as process:
        _wait(process, lambda: _pings(port))
        yield f"redis://{HOST}:{port}"


@contextmanager
def serve(folder: Path, bundle: Path, settings: Mapping[str, str]) -> Iterator[Server]:
    """``forescore serve`` with its default settings, ready; its log goes to a file."""
    port = _free_port()
    command = forescore("serve", str(bundle), "--port", str(port))
    with _running(command, folder / f"serve-{port}.log", settings) as process:
        _wait(process, lambda: _answers(f"http://{HOST}:{port}/readyz"))
        yield Server(port, process)


@contextmanager
def asgi(folder: Path, app: str, settings: Mapping[str, str]) -> Iterator[Server]:
    """An ASGI app under uvicorn with one worker, uvloop and httptools; it writes no access log, which favours it."""
    port = _free_port()
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--loop", "uvloop", "--http", "httptools"]
    command += ["--no-access-log", "--log-level", "warning"]
    with _running(command, folder / f"{app.rpartition('.')[2].partition(':')[0]}-{port}.log", settings) as process:
        _wait(process, lambda: _answers(f"http://{HOST}:{port}/healthz"))
        yield Server(port, process)


@contextmanager
def script(folder: Path, python: str, module: str, settings: Mapping[str, str]) -> Iterator[Server]:
    """A server that is a program of its own, under an interpreter of its own: it is told its port."""
    port = _free_port()
    with _running([python, "-m", module, str(port)], folder / f"{module}-{port}.log", settings) as process:
        _wait(process, lambda: _answers(f"http://{HOST}:{port}/healthz"))
        yield Server(port, process)


def get_json(server: Server, path: str) -> dict[str, Any]:
    """What a server answers to one GET."""
    with urllib.request.urlopen(server.url + path, timeout=10) as response:  # noqa: S310 - our own http URL
        found: dict[str, Any] = json.loads(response.read())
        return found


@contextmanager
def _running(command: Sequence[str], log: Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as told:
        process = subprocess.Popen(
            list(command), cwd=ROOT, env=environment(**settings), stdout=told, stderr=told, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_SECONDS)
        with suppress(ProcessLookupError):  # what it started may live on, and would be measured with the next
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Broken(f"a server does not start: {process.args!r}")
        time.sleep(_POLL_SECONDS)  # another process cannot tell this one that it is ready


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - our own http URL
            return int(response.status) < 400  # noqa: PLR2004 - not an error
    except urllib.error.HTTPError as error:
        return error.code == 404  # noqa: PLR2004 - a reference without probes is ready when it says anything at all
    except OSError:
        return False


def _pings(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
