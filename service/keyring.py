"""The keys that hold now. A file of keys is read again when it changes; one that is broken changes nothing."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from service.keys import Key, find, parse_lines
from shared.clock import Clock
from shared.errors import SettingsError
from shared.metrics import Metrics
from shared.settings import KeySettings
from shared.telemetry import Logger

MOST_BYTES = 1024 * 1024
_INLINE = "FORESCORE_KEYS__LINES"

_log: Logger = structlog.get_logger()
Version = tuple[int, int, int] | None
"""By what a changed file is known."""


class Keyring:
    """Knows no key before ``read``, and so lets nobody in."""

    def __init__(self, settings: KeySettings, clock: Clock, metrics: Metrics) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._keys: Sequence[Key] = ()
        self._version: Version = None

    def find(self, presented: bytes) -> Key | None:
        """The key, if it is one of ours and has not expired."""
        key = find(self._keys, presented)
        return key if key is not None and key.is_valid(self._clock.now()) else None

    def read(self) -> None:
        """Reads file and lines. SettingsError where they cannot be."""
        self._version = _version(self._settings.file)
        self._keys = read_keys(self._settings)

    async def watch(self) -> None:
        """Reads the file again whenever it changed, until it is cancelled."""
        while self._settings.file is not None:
            await asyncio.sleep(self._settings.poll_seconds)
            await self.refresh()

    async def refresh(self) -> None:
        """Reads the file if it changed. What holds stays where the new one cannot be read, and the log says so."""
        version = await asyncio.to_thread(_version, self._settings.file)
        if version == self._version:
            return
        self._version = version
        try:
            self._keys = await asyncio.to_thread(read_keys, self._settings)
        except SettingsError as error:
            self._metrics.keys_unread(unread=True)
            _log.error("keys not read, those before hold", exc_info=error)
        else:
            self._metrics.keys_unread(unread=False)
            _log.info("keys read", keys=len(self._keys))


def read_keys(settings: KeySettings) -> list[Key]:
    """The keys of the file and of the inline lines, together."""
    lines: list[Key] = []
    if settings.lines is not None:
        lines = parse_lines(settings.lines.get_secret_value().replace(";", "\n").splitlines(), _INLINE)
    if settings.file is None:
        return lines
    return lines + parse_lines(_text(settings.file).splitlines(), f"the file of keys {settings.file}")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise SettingsError(f"the file of keys {path}: it has more than {MOST_BYTES} bytes")
        return content.decode()
    except OSError as error:
        raise SettingsError(f"the file of keys {path}: {error.strerror}; `forescore key new --file` makes it") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the file of keys {path}: it is not UTF-8 text") from None


def _version(path: Path | None) -> Version:
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
