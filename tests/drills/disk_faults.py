"""The disk is full, or read-only, while parts are written: a small mount does it where that is allowed."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drills.drill import drill
from drills.scene import Scene

SMALL, LARGE = "48k", "8m"
FILE_BYTES = 1_000
"""A part has more than that."""


@drill("the disk is full in the middle of the parts; room is made, and the same command goes on")
def disk_full(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    place = stage.folder / f"disk-{stage.world.new_number()}"
    with mounted(place, SMALL) as is_mounted:
        run = stage.new_run(out=place / "run")
        limit = {} if is_mounted else {"file_bytes": FILE_BYTES}
        scene.notes.append("a tmpfs of 48 KiB" if is_mounted else "mounting is not allowed here: RLIMIT_FSIZE")
        code = run.complete(chunk_size=1, **limit)
        made = len(list((run.out / "parts").glob("part-*")))
        scene.expect(code == 1, f"a full disk ended the run with {code}")
        scene.expect("cannot be written to: " in run.errors, f"it does not say why: {run.errors[:200]}")
        yield f"full after {made} parts: {run.errors.strip()[:120]}"
        if is_mounted:
            _mount("-o", f"remount,size={LARGE}", str(place))
        scene.ends(run, 0, chunk_size=1)
        scene.accounted(run)
        scene.recovers(lambda: stage.is_cached(run))
        yield "with room, the same command has ended"


@drill("the disk becomes read-only in the middle of the parts; then it is mended, and the same command goes on")
def disk_read_only(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.new_run()
    working = run.start(at="part-00000.parquet renamed", how="stop", chunk_size=1)
    parts = run.out / "parts"
    with read_only(parts) as how:
        scene.notes.append(how)
        working.signal(signal.SIGCONT)
        code = working.code()
        scene.expect(code == 1, f"a read-only disk ended the run with {code}")
        scene.expect("cannot be written to: " in working.errors, f"it does not say why: {working.errors[:200]}")
        yield f"refused: {working.errors.strip()[:120]}"
    scene.ends(run, 0, chunk_size=1)
    scene.accounted(run)
    scene.recovers(lambda: stage.is_cached(run))
    yield "mended, the same command has ended"


@contextmanager
def mounted(place: Path, size: str) -> Iterator[bool]:
    """A file system of that size in memory; yields whether it could be mounted."""
    place.mkdir()
    is_mounted = _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield is_mounted
    finally:
        if is_mounted:
            _unmount(place)


@contextmanager
def read_only(folder: Path) -> Iterator[str]:
    """Makes a folder read-only: by a mount over it, or by its permissions, which bind all but root."""
    mode = folder.stat().st_mode
    is_mounted = _mount("--bind", str(folder), str(folder)) and _mount("-o", "remount,ro,bind", str(folder))
    if not is_mounted:
        folder.chmod(0o555)
    try:
        yield "a read-only mount" if is_mounted else "mounting is not allowed here: a folder without permission"
    finally:
        if is_mounted:
            _unmount(folder)
        else:
            folder.chmod(mode)


def _mount(*arguments: str) -> bool:
    with suppress(OSError):
        return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0  # noqa: S607 - the system's
    return False


def _unmount(place: Path) -> None:
    subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=True)  # noqa: S607 - the system's
