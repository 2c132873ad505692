"""A table that grows by a folder a day, ``dt=2026-11-30``: the newest partition that is complete.

Complete is one with a ``_SUCCESS`` file, which Spark and its like write last. Where no partition of the table has one,
the newest that holds data and whose files have been left alone for a while counts. Dates to come do not count.
"""

from dataclasses import dataclass
from datetime import date, datetime

from pyarrow import fs

from batch_job.files import InputFile, InputFiles
from shared.errors import TableNotFound
from shared.settings import ScheduleSettings

MARKER = "_SUCCESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partition:
    key: str
    value: str
    day: date
    folder: str
    """Where its marker lies."""
    files: tuple[InputFile, ...]

    @property
    def has_data(self) -> bool:
        return any(file.size for file in self.files)

    def settled(self, now: float, seconds: float) -> bool:
        return max(file.mtime_ns for file in self.files) / 1e9 <= now - seconds


def newest_partition(files: InputFiles, settings: ScheduleSettings, now: datetime) -> str | None:
    """The newest complete partition as ``key=value``; None if the table is not partitioned by date.

    TableNotFound if it is, and none of its partitions is complete.
    """
    key = _date_key(files)
    if key is None:
        return None
    found = [one for one in _partitions(files, key) if one.day <= now.date() and one.has_data]
    marked = frozenset[str]() if settings.success_marker == "none" else _marked(files, found)
    if marked or settings.success_marker == "required":
        complete = [one for one in found if one.folder in marked]
        rule = f"a {MARKER} file"
    else:
        seconds = settings.settle_seconds if settings.success_marker == "auto" else 0
        complete = [one for one in found if one.settled(now.timestamp(), seconds)]
        rule = f"data that was left alone for {seconds:g} s"
    if not complete:
        raise TableNotFound(f"{files.table}: no partition by {key} is complete: none up to {now.date()} has {rule}")
    newest = max(complete, key=lambda one: one.day)
    return f"{newest.key}={newest.value}"


def _date_key(files: InputFiles) -> str | None:
    """The outermost folder name whose values are all dates."""
    keys = dict.fromkeys(key for file in files.files for key in file.partitions)
    return next((key for key in keys if all(_day(file.partitions.get(key)) for file in files.files)), None)


def _partitions(files: InputFiles, key: str) -> list[_Partition]:
    by_value: dict[str, list[InputFile]] = {}
    for file in files.files:
        by_value.setdefault(file.partitions[key] or "", []).append(file)
    return [
        _Partition(key=key, value=value, day=day, folder=_folder(inside[0].path, key), files=tuple(inside))
        for value, inside in by_value.items()
        if (day := _day(value)) is not None
    ]


def _marked(files: InputFiles, found: list[_Partition]) -> frozenset[str]:
    folders = [one.folder for one in found]
    infos = files.filesystem.get_file_info([f"{folder}/{MARKER}" for folder in folders])
    pairs = zip(folders, infos, strict=True)
    return frozenset(folder for folder, info in pairs if info.type == fs.FileType.File)


def _folder(path: str, key: str) -> str:
    steps = path.split("/")
    place = next(place for place, step in enumerate(steps) if step.startswith(f"{key}="))
    return "/".join(steps[: place + 1])


def _day(value: str | None) -> date | None:
    try:
        return datetime.fromisoformat(value or "").date()
    except ValueError:
        return None
