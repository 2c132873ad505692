"""The file of the active snapshot, open before it is needed: what stands in for the store while that cannot tell.

It follows the pointer: a new snapshot's file is opened, and the old one closed when nothing looks into it any more.
Where no pointer is known it is the newest promoted snapshot of the bundle that is served, as the record says. All of it
happens on a thread of its own, so that a slow disk holds up nobody else; a look-up that it holds up is given up.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from shared.errors import SnapshotFileCorrupt
from shared.metrics import Metrics
from shared.snapshot import Lookup, SnapshotMeta
from shared.snapshot_file import SnapshotFile, open_snapshot_file
from shared.snapshot_file_layout import PATTERN
from shared.snapshot_file_record import find_file, open_newest, read_record, record_path
from shared.telemetry import Logger

Sign = tuple[object, ...]
"""Changes when there may be another file to open."""

_log: Logger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where files are looked for, and which will do: those of the model and of this very bundle."""

    runs: Path
    model: str
    bundle_digest: str


class Shelf:
    """Holds one file open. ``seconds``: how long a look-up may take."""

    def __init__(self, place: Place, executor: ThreadPoolExecutor, seconds: float, metrics: Metrics) -> None:
        self._place = place
        self._executor = executor
        self._seconds = seconds
        self._metrics = metrics
        self._file: SnapshotFile | None = None
        self._sign: Sign | None = None
        self._held_up: Future[list[Lookup] | None] | None = None

    @property
    def meta(self) -> SnapshotMeta | None:
        """The snapshot whose file is open."""
        return None if self._file is None else self._file.meta

    def stands_for(self, snapshot: str | None) -> SnapshotMeta | None:
        """What is open, if it is the file of that snapshot; None: of whichever."""
        meta = self.meta
        return meta if meta is not None and snapshot in {None, meta.snapshot} else None

    async def look_up(self, meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup] | None:
        """One answer for each id; None if that snapshot's file is not open any more, or does not answer in time."""
        if self._held_up is not None and not self._held_up.done():
            return None
        work = self._executor.submit(self._look_up, meta.snapshot, list(ids))
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(work)
        except TimeoutError:
            return None
        finally:
            if not work.done():
                self._held_up = work

    async def watch(self, active: Callable[[], SnapshotMeta | None], seconds: float) -> None:
        """Follows the pointer for ever, looking every so many seconds."""
        while True:
            await asyncio.sleep(seconds)
            await self.follow(active())

    async def follow(self, active: SnapshotMeta | None) -> None:
        """Opens the file of the active snapshot, if there is one that is not open yet, and closes another."""
        try:
            await asyncio.wrap_future(self._executor.submit(self._follow, active))
        except Exception as error:  # noqa: BLE001 - whatever happens, a service must not stop looking
            _log.error("snapshot file not opened", exc_info=error)
        self._metrics.snapshot_file(is_open=self._file is not None)

    async def close(self) -> None:
        """Nothing is looked up any more."""
        file, self._file = self._file, None
        if file is not None:
            await asyncio.wrap_future(self._executor.submit(file.close))

    def _look_up(self, snapshot: str, ids: Sequence[str]) -> list[Lookup] | None:
        """On the thread that also closes files: what is looked into is open."""
        file = self._file
        return file.lookup(ids) if file is not None and file.meta.snapshot == snapshot else None

    def _follow(self, active: SnapshotMeta | None) -> None:
        sign = self._signed(active)
        if sign == self._sign:
            return
        self._sign = sign
        found = self._opened(active)
        before, self._file = self._file, found
        if before is not None:
            before.close()
        if found is not None and (before is None or before.meta != found.meta):
            _log.info("snapshot file open", snapshot=found.meta.snapshot, entities=found.rows)
        elif found is None and before is not None:
            _log.warning("snapshot file closed: nothing stands in for the store", snapshot=before.meta.snapshot)

    def _opened(self, active: SnapshotMeta | None) -> SnapshotFile | None:
        place = self._place
        try:
            if active is None:
                return open_newest(place.runs, place.model, place.bundle_digest)
            return self._file_of(active) if active.bundle_digest == place.bundle_digest else None
        except SnapshotFileCorrupt as error:
            _log.warning("snapshot file not opened", exc_info=error)
            return None

    def _file_of(self, active: SnapshotMeta) -> SnapshotFile | None:
        recorded = read_record(self._place.runs, self._place.model).active
        first = () if recorded is None or recorded.file is None else (self._place.runs / recorded.file,)
        path = find_file(self._place.runs, active, first)
        return None if path is None else open_snapshot_file(path)

    def _signed(self, active: SnapshotMeta | None) -> Sign:
        runs = self._place.runs
        record = record_path(runs, self._place.model)
        paths = [record] if active is None else [record, *sorted(runs.glob(PATTERN))]
        return (active, *(_stamp(path) for path in paths))


def _stamp(path: Path) -> tuple[str, int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return (str(path), found.st_ino, found.st_mtime_ns)
    return None
