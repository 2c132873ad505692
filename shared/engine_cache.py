"""Compiled graphs of this host: made once, kept in a folder that nobody else can write to.

::

    FORESCORE_HOME/engines/             0700, ours
        {key}.so                        the code
        {key}.json                      its size and sha256, and what it was made from
        .lock                           held by the process that compiles
        .work-{random}/                 where it compiles; empty of meaning once the lock is free

What lies here is executed. So it is only ever what this host compiled itself from a graph that was checked, and it is
loaded only if the folder is private and the code has the digest that was written beside it. The key names all that the
code depends on; ``shared.compiled`` makes it.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from shared.errors import EngineUnavailable

LOCK = ".lock"
_WORK = ".work-"
_OTHERS = 0o077
_MAX_NOTE_BYTES = 64 * 1024

Compile = Callable[[Path, Path], None]
"""Compiles into the file ``(path, ...)``, with all that it needs on the way in the folder ``(..., work)``."""


@dataclass(frozen=True, slots=True)
class EngineCache:
    """The folder. Nothing is made or looked at before it is asked for."""

    folder: Path

    def find(self, key: str) -> Path | None:
        """The code under that key, or None where there is none, or not as it was written.

        EngineUnavailable where the folder may be written to by others: then nothing in it is to be trusted.
        """
        if not os.path.lexists(self.folder):
            return None
        _require_private(self.folder)
        code = self.folder / f"{key}.so"
        return code if _holds(code, self.folder / f"{key}.json") else None

    def make(self, key: str, note: Mapping[str, object], fill: Compile) -> Path:
        """The code under that key, compiled if need be: by one process, while others wait for it.

        EngineUnavailable where the folder is not private, or cannot be written to.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _require_private(self.folder)
            with _locked(self.folder):
                return self.find(key) or self._compiled(key, note, fill)
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise EngineUnavailable(
                f"the engine cache {self.folder} cannot be written to: {reason}; "
                "make room, or name another folder by FORESCORE_ENGINE_CACHE"
            ) from None

    def _compiled(self, key: str, note: Mapping[str, object], fill: Compile) -> Path:
        for leftover in self.folder.glob(f"{_WORK}*"):  # of a process that died: the lock is ours
            shutil.rmtree(leftover, ignore_errors=True)
        work = Path(
            tempfile.mkdtemp(prefix=_WORK, dir=self.folder.absolute())
        )  # a compiler works in a folder of its own
        try:
            code = work / f"{key}.so"
            fill(code, work)
            code.chmod(0o600)
            written = work / f"{key}.json"
            written.write_bytes(orjson.dumps({**note, **_facts(code)}, option=orjson.OPT_INDENT_2))
            for file in (code, written):  # the code first: without its digest it is not there
                _sync(file)
                file.replace(self.folder / file.name)
                _sync(self.folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return self.folder / f"{key}.so"


def _require_private(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise EngineUnavailable(f"the engine cache {folder} is not a folder; name another by FORESCORE_ENGINE_CACHE")
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & _OTHERS:
        raise EngineUnavailable(
            f"the engine cache {folder} is not private: code is run from it, so it must belong to user "
            f"{os.geteuid()} and be closed to all others; chmod 700 it, or name another by FORESCORE_ENGINE_CACHE"
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Waits for the folder's lock. The kernel lets go of it when its holder dies."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _holds(code: Path, note: Path) -> bool:
    """Whether the code is what was written."""
    try:
        if note.stat().st_size > _MAX_NOTE_BYTES:
            return False
        told = orjson.loads(note.read_bytes())
        return isinstance(told, dict) and {name: told.get(name) for name in ("bytes", "sha256")} == _facts(code)
    except (OSError, orjson.JSONDecodeError):
        return False


def _facts(code: Path) -> dict[str, object]:
    descriptor = os.open(code, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return {"bytes": os.fstat(descriptor).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
