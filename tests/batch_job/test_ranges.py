"""Ranges of partitions, ``first..last``."""

from pathlib import Path

import pytest

from batch_job.files import find_files
from batch_job.ranges import members
from shared.errors import SettingsError, TableNotFound

DAYS = ("2026-10-31", "2026-11-01", "2026-11-02", "2026-11-10", "2026-12-01")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-11-01..2026-11-10", DAYS[1:4]),
        ("2026-11-01..2026-11-01", DAYS[1:2]),
        ("2026-11-02..", DAYS[2:]),
        ("..2026-11-01", DAYS[:2]),
        ("20261101..20261130", DAYS[1:4]),
        ("2026-11-03..2026-11-09", ()),
    ],
)
def test_days(text: str, found: tuple[str, ...]) -> None:
    """Both ends are in it, and an open end takes all."""
    assert members(text, DAYS, "dt") == set(found)


def test_numbers_compare_as_numbers() -> None:
    """9 lies before 10, however it is written."""
    assert members("9..11", ["8", "9", "010", "11", "12"], "shard") == {"9", "010", "11"}
    assert members("-1..0.5", ["-2", "-1", "0.50", "1"], "x") == {"-1", "0.50"}


def test_text_compares_as_text() -> None:
    """Months, countries, anything: by their letters, exactly."""
    assert members("2026-10..2026-11", ["2026-09", "2026-10", "2026-11", "2026-12"], "month") == {"2026-10", "2026-11"}
    assert members("DE..FR", ["AT", "DE", "ES", "FR", "de"], "country") == {"DE", "ES", "FR"}


def test_an_end_that_is_a_day_takes_its_hours() -> None:
    """``..2026-11-02`` ends with that day, and not where it begins; times compare in UTC."""
    hours = ["2026-11-01T23", "2026-11-02T00", "2026-11-02T23", "2026-11-03T00"]
    assert members("2026-11-02..2026-11-02", hours, "dt") == set(hours[1:3])
    assert members("2026-11-02T01..", hours, "dt") == set(hours[2:])
    assert members("2026-11-02T00:00+02:00..2026-11-02T00", hours, "dt") == set(hours[:2])
    assert members("2026-11-02T12..", ["2026-11-02", "2026-11-03"], "dt") == {"2026-11-03"}


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        (
            "2026-11..2026-12",
            DAYS,
            "--partition dt=2026-11..2026-12: the values of dt are dates, so write its ends as 20",
        ),
        ("a..b", ("1", "2"), "the values of dt are numbers, so write its ends as 12"),
        ("2026-11-02..2026-11-01", DAYS, "it ends before it begins"),
        ("b..a", ("x",), "it ends before it begins"),
        ("..", DAYS, "name at least one end"),
    ],
)
def test_what_is_no_range_says_why(text: str, values: tuple[str, ...], message: str) -> None:
    """An end of another kind would compare as text, and leave out what was meant."""
    with pytest.raises(SettingsError, match=message):
        members(text, values, "dt")


def table(folder: Path, *values: str) -> str:
    for value in values:
        path = folder / f"dt={value}" / "part.csv"
        path.parent.mkdir(parents=True)
        path.write_text("id,x\na,1\n")
    return str(folder)


def test_the_files_of_a_range(tmp_path: Path) -> None:
    """All files of its partitions are read, and the newest of them says how old the data is."""
    found = find_files(table(tmp_path, *DAYS)).only("dt=2026-11-01..2026-11-30")
    assert found.values("dt") == list(DAYS[1:4])
    assert (found.range_key, found.as_of) == ("dt", 1794268800)


def test_an_empty_range_names_what_there_is(tmp_path: Path) -> None:
    """The last partitions, how many there are, and where they begin."""
    with pytest.raises(
        TableNotFound,
        match=r"no partition lies in dt=2027-01-01\.\.; the last ones are 2026-11-02, 2026-11-10, 2026-12-01, of 5 ",
    ):
        find_files(table(tmp_path, *DAYS)).only("dt=2027-01-01..")


def test_the_null_partition_lies_in_no_range(tmp_path: Path) -> None:
    """It has no value that could be compared."""
    found = find_files(table(tmp_path, "2026-11-01", "__HIVE_DEFAULT_PARTITION__")).only("dt=..2026-11-30")
    assert found.values("dt") == ["2026-11-01"]


def test_a_folder_that_is_named_like_a_range_comes_first(tmp_path: Path) -> None:
    """``dt=a..b`` can be the name of a folder."""
    found = find_files(table(tmp_path, "a..b", "aa", "b")).only("dt=a..b")
    assert found.values("dt") == ["a..b"]
