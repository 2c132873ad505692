"""Files that are whole or not there: written under a temporary name, synced, renamed, and the folder synced."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shared.errors import RunError

TEMPORARY = ".tmp"

_ONLY_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""What no reading fails with."""


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Around all that is written there: RunError where the disk is full, or must not be written to."""
    try:
        yield
    except OSError as error:
        forbidden = error.errno == errno.EACCES and str(error.filename).startswith(str(folder))
        if error.errno not in _ONLY_WRITING and not forbidden:
            raise
        reason = (error.strerror or "unknown").lower()
        raise RunError(
            f"{folder}: cannot be written to: {reason}; make room or give the permission, then run the same command "
            "again: it goes on where it was"
        ) from None


def no_step(name: str) -> None:
    """For callers that nobody watches."""


def write_atomic(path: Path, fill: Callable[[BinaryIO], object], step: Callable[[str], None] = no_step) -> None:
    """Lets ``fill`` write the file. If it raises, what was at ``path`` before is still there, untouched.

    ``step`` is told of each step that was made, by name.
    """
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    try:
        with temporary.open("w+b") as file:
            fill(file)
            step(f"{path.name} written")
            file.flush()
            os.fsync(file.fileno())
        step(f"{path.name} synced")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    step(f"{path.name} renamed")
    sync_folder(path.parent)
    step(f"{path.parent.name} synced")


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
