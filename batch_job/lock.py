"""One process at a time in a run's folder. The kernel lets go of the lock when its holder dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import RunError, RunLocked

FILE = ".lock"


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Holds the folder, which is made if it is not there. RunLocked names the process that holds it already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        reason = (error.strerror or "unknown").lower()
        raise RunError(f"{folder}: cannot be written to: {reason}; name another folder with --out") from None
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
        raise RunLocked(f"{folder}: process {holder} is working there; wait for it, or name another --out") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
