"""Which partition of a table by date is complete, and the newest."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.schedule import utc

from batch_job.files import find_files
from batch_job.partitions import MARKER, newest_partition
from shared.errors import TableNotFound
from shared.settings import ScheduleSettings

NOW = utc("2026-11-30 02:00")
LONG_AGO = utc("2026-11-30 00:00").timestamp()
Add = Callable[..., Path]


@pytest.fixture
def add(tmp_path: Path) -> Add:
    """Adds a file to a partition; by default one that was written two hours ago."""

    def write(
        folder: str, *, name: str = "a.parquet", at: float = LONG_AGO, marked: bool = False, size: int = 4
    ) -> Path:
        path = tmp_path / "table" / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        os.utime(path, (at, at))
        if marked:
            (tmp_path / "table" / folder.partition("/")[0] / MARKER).touch()
        return path

    return write


def newest(tmp_path: Path, **settings: object) -> str | None:
    return newest_partition(find_files(str(tmp_path / "table")), ScheduleSettings.model_validate(settings), NOW)


def test_a_table_without_dates_is_taken_whole(add: Add, tmp_path: Path) -> None:
    """No folders, or folders of something else: there is no partition to pick."""
    add("")
    assert newest(tmp_path) is None
    add("country=DE")
    assert newest(tmp_path) is None


def test_the_newest_that_settled(add: Add, tmp_path: Path) -> None:
    """Without markers, one that was written a minute ago may still be being written."""
    add("dt=2026-11-28")
    add("dt=2026-11-29")
    add("dt=2026-11-30", at=NOW.timestamp() - 60)
    assert newest(tmp_path) == "dt=2026-11-29"
    assert newest(tmp_path, settle_seconds=30) == "dt=2026-11-30"
    assert newest(tmp_path, success_marker="none") == "dt=2026-11-30"


def test_where_one_has_a_marker_all_need_one(add: Add, tmp_path: Path) -> None:
    """A newer partition without a _SUCCESS file is not complete."""
    add("dt=2026-11-28", marked=True)
    add("dt=2026-11-29")
    assert newest(tmp_path) == "dt=2026-11-28"
    assert newest(tmp_path, success_marker="none") == "dt=2026-11-29"


def test_a_marker_makes_it_complete_at_once(add: Add, tmp_path: Path) -> None:
    """With a marker, nothing need settle."""
    add("dt=2026-11-29", marked=True)
    add("dt=2026-11-30", at=NOW.timestamp(), marked=True)
    assert newest(tmp_path) == "dt=2026-11-30"


def test_a_required_marker_that_nobody_has(add: Add, tmp_path: Path) -> None:
    """The error names the rule."""
    add("dt=2026-11-29")
    with pytest.raises(TableNotFound, match=r"no partition by dt is complete.*_SUCCESS"):
        newest(tmp_path, success_marker="required")


def test_a_partition_without_data_is_none(add: Add, tmp_path: Path) -> None:
    """Empty files, and files that are hidden because they are being written, are no data."""
    add("dt=2026-11-28")
    add("dt=2026-11-29", size=0)
    add("dt=2026-11-30/_temporary")
    assert newest(tmp_path) == "dt=2026-11-28"


def test_a_date_to_come_does_not_count(add: Add, tmp_path: Path) -> None:
    """dt=9999-12-31 is no day whose data is there."""
    add("dt=2026-11-29")
    add("dt=9999-12-31")
    assert newest(tmp_path) == "dt=2026-11-29"


def test_the_date_decides_and_not_the_name(add: Add, tmp_path: Path) -> None:
    """Order is that of the days; a folder below the date is part of it."""
    add("dt=20261101/region=eu")
    add("dt=2026-10-31/region=eu")
    assert newest(tmp_path) == "dt=20261101"


def test_a_folder_that_is_no_date_among_dates(add: Add, tmp_path: Path) -> None:
    """Then the table is not partitioned by date, and nothing is guessed."""
    add("dt=2026-11-29")
    add("dt=latest")
    assert newest(tmp_path) is None
