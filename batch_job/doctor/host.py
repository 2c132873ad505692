"""This machine: cores and threads, open files, disk, clock."""

import resource
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from batch_job.doctor.finding import Check, Verdict, failure, mebibytes, note, ok, warning
from batch_job.schedule import Nights
from batch_job.schedule_health import stamp
from shared.clock import Clock
from shared.host import cores
from shared.settings import Settings

CGROUP = Path("/sys/fs/cgroup")
SPARE_FILES = 256
"""Open files of one process besides its connections to the store: the libraries', the model's, and callers'."""

_EARLIEST = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine as the settings use it."""

    settings: Settings
    wall: Clock
    cgroup: Path = CGROUP

    @property
    def runs(self) -> Path:
        """Where runs lie."""
        return self.settings.home / "runs"


def cores_and_threads(host: Host) -> Iterator[Verdict]:
    workers, threads = host.settings.service.workers, host.settings.threads or 1
    usable, quota = cores(), cpu_quota(host.cgroup)
    bound = usable if quota is None else min(usable, quota)
    limit = "" if quota is None else f", of which the cgroup allows {quota:g}"
    told = f"{workers} workers x {threads} threads of a pass = {workers * threads}, on {usable} cores{limit}"
    if workers * threads > bound:
        step = f"lower FORESCORE_SERVICE__WORKERS or FORESCORE_THREADS to {max(1, int(bound))} together, or give cores"
        yield warning(told, step)
    else:
        yield ok(told)


def open_files(host: Host) -> Iterator[Verdict]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = host.settings.redis.read_connections + SPARE_FILES
    limit = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    told = f"this process may open {limit}; one worker needs {needed:,}, and one more for each caller"
    if soft != resource.RLIM_INFINITY and soft < needed:
        yield warning(told, "raise it: ulimit -n 65536, LimitNOFILE= or ulimits: in the container's file")
    else:
        yield ok(told)


def runs_writable(host: Host) -> Iterator[Verdict]:
    place = _nearest(host.runs)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        yield failure(f"{place} cannot be written to: {reason}", "free or remount it, or name another FORESCORE_HOME")
    else:
        yield ok(f"{place} can be written to")


def disk_space(host: Host) -> Iterator[Verdict]:
    free = shutil.disk_usage(_nearest(host.runs)).free
    last = last_run_bytes(host.runs)
    if last is None:
        yield note(f"{mebibytes(free)} are free; there is no run yet to compare it with", "look again after a backfill")
        return
    told = f"{mebibytes(free)} are free; the last run takes {mebibytes(last)}"
    step = "remove old runs from its runs folder, or move FORESCORE_HOME to a larger disk"
    if free < last:
        yield failure(told, step)
    elif free < 2 * last:
        yield warning(told, step)
    else:
        yield ok(told)


def clock_and_zone(host: Host) -> Iterator[Verdict]:
    now, schedule = host.wall.now(), host.settings.schedule
    if now < _EARLIEST:
        yield failure(f"this host says it is {stamp(now)}", "set its clock (NTP): ages and leases are told by it")
        return
    due = Nights(schedule.cron, schedule.timezone).upcoming(datetime.fromtimestamp(now, UTC), 1)
    following = stamp(due[0].timestamp()) if due else "never"
    yield ok(f"it is {stamp(now)}; cron {schedule.cron!r} in {schedule.timezone} is next due at {following}")


def cpu_quota(cgroup: Path) -> float | None:
    """How many cores' time the cgroup gives (version 2, else 1); None: no limit, or none to be seen.

    https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    """
    try:
        whole = (cgroup / "cpu.max").read_text(encoding="ascii").split()
    except OSError:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        try:
            whole = [(cgroup / "cpu" / name).read_text(encoding="ascii").strip() for name in names]
        except OSError:
            return None
    quota, period = whole
    return None if quota in {"max", "-1"} else int(quota) / int(period)


def last_run_bytes(runs: Path) -> int | None:
    """The size of the run that was begun last; None where there is none."""
    folders = [folder for folder in runs.glob("*/") if (folder / "manifest.json").is_file()]
    if not folders:
        return None
    last = max(folders, key=lambda folder: (folder / "manifest.json").stat().st_mtime)
    return sum(file.stat().st_size for file in last.rglob("*") if file.is_file())


def _nearest(path: Path) -> Path:
    """The folder itself, or where it would be made."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.is_dir())


CHECKS = (
    Check("threads", "cores, cgroup, FORESCORE_SERVICE__WORKERS, FORESCORE_THREADS", cores_and_threads),
    Check("open files", "RLIMIT_NOFILE, FORESCORE_REDIS__READ_CONNECTIONS", open_files),
    Check("runs folder", "a file made and removed under FORESCORE_HOME/runs", runs_writable),
    Check("disk", "free space under FORESCORE_HOME/runs, and the last run", disk_space),
    Check("clock", "this host's clock, FORESCORE_SCHEDULE__CRON and __TIMEZONE", clock_and_zone),
)
