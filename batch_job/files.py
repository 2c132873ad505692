"""The files of an input table: found, sorted, told apart by partition, fingerprinted."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from batch_job.ranges import MARK, members
from shared.errors import SettingsError, SourceError, TableNotFound

Kind = Literal["parquet", "csv", "arrow"]

_KINDS: dict[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_LISTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One file. ``partitions`` are the ``key=value`` folders that it lies in; their values are text, exact."""

    path: str
    size: int
    mtime_ns: int
    partitions: dict[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFiles:
    """All files of a table, sorted by path: the order of its rows."""

    table: str
    filesystem: fs.FileSystem
    kind: Kind
    files: tuple[InputFile, ...]

    @property
    def digest(self) -> str:
        """sha256 over the path, size and time of change of each file: another table, or a changed one, differs."""
        lines = (f"{file.path}\0{file.size}\0{file.mtime_ns}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def as_of(self) -> int:
        """How old the data is, in epoch seconds: the latest date among the partitions, else the latest file's time."""
        dates = [_date(value) for file in self.files for value in file.partitions.values()]
        known = [date for date in dates if date is not None]
        return max(known) if known else max(file.mtime_ns for file in self.files) // 1_000_000_000

    @property
    def range_key(self) -> str | None:
        """The outermost folder name of which the files have several values."""
        keys = dict.fromkeys(key for file in self.files for key in file.partitions)
        return next((key for key in keys if len(self.values(key)) > 1), None)

    def only(self, partition: str | None) -> Self:
        """The files of one partition, given as ``key=value``, or of a range of them, ``key=first..last``.

        A folder of exactly that name comes before a range.
        """
        if partition is None:
            return self
        key, equals, value = partition.partition("=")
        if not (key and equals and value):
            raise SettingsError(
                f"--partition {partition[:80]!r}: write it as key=value or key=first..last, for example dt=2026-11-01"
            )
        kept = tuple(file for file in self.files if file.partitions.get(key) == value)
        if not kept and MARK in value:
            wanted = members(value, self.values(key), key)
            kept = tuple(file for file in self.files if file.partitions.get(key) in wanted)
        if not kept:
            what = "no partition lies in" if MARK in value else "no partition"
            raise TableNotFound(f"{self.table}: {what} {key}={value[:80]}; {_known(self.files, key)}")
        return replace(self, files=kept)

    def values(self, key: str) -> list[str]:
        """The values of the folders ``key=...``, each once, in the order of the files."""
        return list(dict.fromkeys(value for file in self.files if (value := file.partitions.get(key)) is not None))


def find_files(table: str) -> InputFiles:
    """The files at a path: one file, a folder, a pattern with ``*``, or an object-store URI of a file or folder."""
    try:
        filesystem, place = _filesystem(table)
        infos, base = _infos(filesystem, place, table)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{table}: cannot be listed: {_reason(error)}") from None
    files = sorted((_input_file(info, base) for info in infos), key=lambda file: file.path)
    kinds = {_kind(file.path) for file in files}
    if not files:
        raise TableNotFound(f"{table}: holds no file ending in {', '.join(_KINDS)}")
    if len(kinds) > 1:
        raise SourceError(f"{table}: holds {' and '.join(sorted(map(str, kinds)))} files; name one kind with a pattern")
    return InputFiles(table=table, filesystem=filesystem, kind=_require_kind(files[0].path), files=tuple(files))


def _filesystem(table: str) -> tuple[fs.FileSystem, str]:
    if "://" in table:
        filesystem, place = fs.FileSystem.from_uri(table)
        return filesystem, place
    return fs.LocalFileSystem(), str(Path(table).expanduser().resolve())


def _infos(filesystem: fs.FileSystem, place: str, table: str) -> tuple[list[fs.FileInfo], str]:
    """The data files, and the folder below which ``key=value`` names and hidden files are looked for."""
    info = filesystem.get_file_info(place)
    if info.type == fs.FileType.NotFound and any(sign in place for sign in "*?["):
        base, paths = _matches(Path(place))
        return _data_files(filesystem.get_file_info(paths), base), base
    if info.type == fs.FileType.NotFound:
        raise TableNotFound(f"{table}: no such file or folder; name a Parquet, CSV or Arrow file, or a folder of them")
    if info.type == fs.FileType.File:
        return [info], place.rsplit("/", 1)[0]
    return _data_files(filesystem.get_file_info(fs.FileSelector(place, recursive=True)), place), place


def _matches(pattern: Path) -> tuple[str, list[str]]:
    """The folder above the first wildcard, and the paths that match."""
    first = next(place for place, step in enumerate(pattern.parts) if any(sign in step for sign in "*?["))
    base = Path(*pattern.parts[:first])
    return str(base), [str(path) for path in base.glob("/".join(pattern.parts[first:]))]


def _data_files(infos: Sequence[fs.FileInfo], base: str) -> list[fs.FileInfo]:
    """Files of a known kind; what is hidden (``_SUCCESS``, ``.tmp``) is not part of the table."""
    files = (info for info in infos if info.type == fs.FileType.File and not _hidden(info.path, base))
    return [info for info in files if _kind(info.path)]


def _hidden(path: str, base: str) -> bool:
    return any(step.startswith((".", "_")) for step in path.removeprefix(base).split("/"))


def _input_file(info: fs.FileInfo, base: str) -> InputFile:
    steps = info.path.removeprefix(base).split("/")[:-1]
    pairs = (step.split("=", 1) for step in steps if "=" in step)
    partitions = {key: None if value == _HIVE_NULL else unquote(value) for key, value in pairs}
    return InputFile(path=info.path, size=info.size or 0, mtime_ns=info.mtime_ns or 0, partitions=partitions)


def _kind(path: str) -> Kind | None:
    name = path.rsplit("/", 1)[-1].lower()
    return next((kind for suffix, kind in _KINDS.items() if name.endswith(suffix)), None)


def _require_kind(path: str) -> Kind:
    kind = _kind(path)
    if kind is None:
        raise SourceError(f"{path}: the name says no format; it must end in {', '.join(_KINDS)}")
    return kind


def _date(value: str | None) -> int | None:
    try:
        return int(datetime.fromisoformat(value or "").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def _known(files: Sequence[InputFile], key: str) -> str:
    values = sorted({file.partitions[key] or _HIVE_NULL for file in files if key in file.partitions})
    if values:
        of_all = f", of {len(values)} from {values[0]} on" if len(values) > _LISTED else ""
        return f"the last ones are {', '.join(values[-_LISTED:])}{of_all}"
    keys = sorted({name for file in files for name in file.partitions})
    return f"it is partitioned by {', '.join(keys)}" if keys else "its files lie in no key=value folders"


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).splitlines()[0][:200]
