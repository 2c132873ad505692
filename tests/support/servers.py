"""Real servers for tests, and the ways in which they fail: stopped, killed, paused, absent, hung."""

import atexit
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from shared.embedded import valkey_binary

HOST = "127.0.0.1"


class ValkeyProcess:
    """One server on one port. It keeps nothing on disk: after ``restart`` it is empty."""

    def __init__(self, folder: Path, port: int, args: tuple[str, ...], binary: Path | None = None) -> None:
        self.port = port
        self._binary = binary or valkey_binary()
        self._folder = folder
        self._args = args
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self, *args: str) -> bool:
        """Whether it came up: it does not if another process took the port meanwhile. ``args``: for this time only."""
        fixed = (
            "--port",
            str(self.port),
            "--bind",
            HOST,
            "--dir",
            str(self._folder),
            "--save",
            "",
            "--appendonly",
            "no",
        )
        with (self._folder / f"valkey-{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen([str(self._binary), *fixed, *self._args, *args], stdout=log, stderr=log)
        process = self._process
        wait_until(lambda: process.poll() is not None or self.answers())
        return process.poll() is None

    def answers(self) -> bool:
        """Whether it says anything to a PING, be it that it wants a password."""
        try:
            return self.says(b"PING\r\n")[:1] in {b"+", b"-"}
        except OSError:
            return False

    def says(self, command: bytes) -> bytes:
        """The first bytes that it answers to a command."""
        with socket.create_connection((HOST, self.port), timeout=1) as connection:
            connection.sendall(command)
            return connection.recv(16)

    def stop(self) -> None:
        """Ends it in good order; nothing happens if it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """From now on it takes connections and says nothing."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """The same port, empty."""
        self.stop()
        assert self.start(), f"port {self.port} was taken before the restart"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server has ended"
        return self._process

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)  # a paused process hears nothing else
        self._process.wait(timeout=20)
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_valkey(tmp: Path, *args: str, binary: Path | None = None) -> ValkeyProcess:
    """A real server on a free port: Valkey, or what ``binary`` is. ``args`` go to it, such as ``--maxmemory 1mb``."""
    for _ in range(5):
        server = ValkeyProcess(tmp, free_port(), args, binary)
        if server.start():
            return server
        server.stop()
    raise AssertionError(f"the server does not start with {args}; its logs are in {tmp}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@cache
def dead_port() -> int:
    """A port on which every connection is refused: it is bound for as long as the tests run, and nobody listens."""
    holder = socket.socket()
    atexit.register(holder.close)
    holder.bind((HOST, 0))
    return int(holder.getsockname()[1])


@contextmanager
def hung_server() -> Iterator[int]:
    """A port that takes connections and never answers: the kernel greets, and no program is behind it."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(512)
        yield int(listener.getsockname()[1])


def wait_until(condition: Callable[[], bool], timeout: float = 10) -> None:
    """Returns as soon as the condition holds; fails after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {timeout} seconds"
        time.sleep(0.005)  # the one place in the tests that polls
