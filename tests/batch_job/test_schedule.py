"""Cron lines, time zones, and what apscheduler's job really has."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from apscheduler.events import EVENT_JOB_EXECUTED, EVENT_JOB_MISSED
from apscheduler.executors.base import run_job
from hypothesis import given
from hypothesis import strategies as st
from support.schedule import days, utc

from batch_job.schedule import JOB, Nights, build_scheduler, effective
from shared.errors import SettingsError
from shared.settings import ScheduleSettings

SPRING, AUTUMN = "2026-03-28 12:00", "2026-10-24 12:00"


def upcoming(cron: str, zone: str, after: str, count: int = 3) -> list[datetime]:
    return [moment.astimezone(UTC) for moment in Nights(cron, zone).upcoming(utc(after), count)]


def test_the_default_is_two_o_clock_in_utc() -> None:
    """02:00 UTC, each day."""
    settings = ScheduleSettings()
    assert upcoming(settings.cron, settings.timezone, "2026-11-29 12:00") == days("2026-11-30 02:00", 3)


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["2026-03-29 01:30", "2026-03-30 00:30", "2026-03-31 00:30"]),  # not on the wall: 03:30
        ("0 2 * * *", ["2026-03-29 01:00", "2026-03-30 00:00", "2026-03-31 00:00"]),  # not on the wall: 03:00
        ("0 3 * * *", ["2026-03-29 01:00", "2026-03-30 01:00", "2026-03-31 01:00"]),
    ],
)
def test_the_night_that_skips_an_hour_has_one_moment(cron: str, expected: list[str]) -> None:
    """In spring a time that the clock skips counts once, by the clock before the change."""
    assert upcoming(cron, "Europe/Berlin", SPRING) == [utc(moment) for moment in expected]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["2026-10-25 00:30", "2026-10-26 01:30", "2026-10-27 01:30"]),  # on the wall twice
        ("0 3 * * *", ["2026-10-25 02:00", "2026-10-26 02:00", "2026-10-27 02:00"]),
    ],
)
def test_the_night_that_repeats_an_hour_has_one_moment(cron: str, expected: list[str]) -> None:
    """In autumn a time that comes twice counts the first time only."""
    assert upcoming(cron, "Europe/Berlin", AUTUMN) == [utc(moment) for moment in expected]


@given(
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    at=st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis adds it
)
def test_every_day_has_exactly_one_moment(hour: int, minute: int, zone: str, at: datetime) -> None:
    """Whenever one asks: moments are 22 to 26 hours apart, the last is not after now, and the next follows it."""
    nights = Nights(f"{minute} {hour} * * *", zone)
    last, following = nights.last(at), nights.upcoming(at, 3)
    assert last is not None
    assert last <= at < following[0]
    assert nights.upcoming(last, 3)[0] == following[0]
    moments = [last, *following]
    gaps = {after.astimezone(UTC) - before.astimezone(UTC) for before, after in pairwise(moments)}
    assert all(timedelta(hours=22) <= gap <= timedelta(hours=26) for gap in gaps)


def test_many_runs_a_day_are_in_order_and_none_comes_twice() -> None:
    """Also over a change of the clock, moments are strictly one after the other."""
    for begin in (SPRING, AUTUMN):
        moments = upcoming("*/30 * * * *", "Europe/Berlin", begin, 60)
        assert moments == sorted(set(moments))


@pytest.mark.parametrize(
    ("weekday", "expected"),
    [
        ("0", ["Sun"] * 2),
        ("7", ["Sun"] * 2),
        ("1", ["Mon"] * 2),
        ("1-5", ["Mon", "Tue", "Wed", "Thu", "Fri", "Mon"]),
        ("5-7", ["Fri", "Sat", "Sun", "Fri"]),
        ("fri-mon", ["Mon", "Fri", "Sat", "Sun", "Mon"]),
        ("*/2", ["Tue", "Thu", "Sat", "Sun", "Tue"]),
        ("SUN,3", ["Wed", "Sun", "Wed"]),
    ],
)
def test_weekdays_are_those_of_cron(weekday: str, expected: list[str]) -> None:
    """0 and 7 are Sunday, as in every crontab."""
    found = upcoming(f"0 2 * * {weekday}", "UTC", "2026-11-29 12:00", len(expected))
    assert [moment.strftime("%a") for moment in found] == expected


def test_a_rare_day_is_found_both_ways() -> None:
    """29 February: the last one and the next one."""
    nights = Nights("0 2 29 2 *", "UTC")
    assert nights.last(utc("2026-01-01 00:00")) == utc("2024-02-29 02:00")
    assert nights.upcoming(utc("2026-01-01 00:00"), 1) == [utc("2028-02-29 02:00")]


@pytest.mark.parametrize(
    ("cron", "rule"),
    [
        ("0 2 * *", "five fields"),
        ("@daily", "five fields"),
        ("61 2 * * *", "higher than the maximum"),
        ("a 2 * * *", "Unrecognized"),
        ("0 2 30 2 *", "never due"),
        ("0 2 1 * 1", "a day of the month and a weekday"),
        ("0 2 * * 8", "0 to 7"),
        ("0 2 * * noday", "0 to 7"),
        ("0 2 * * 1-", "mon-fri"),
    ],
)
def test_a_line_that_cannot_be_is_refused(cron: str, rule: str) -> None:
    """The error names the setting and the rule."""
    with pytest.raises(SettingsError, match=f"FORESCORE_SCHEDULE__CRON.*{rule}"):
        Nights(cron, "UTC")


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "", "../etc/passwd", "CEST+25"])
def test_a_time_zone_that_is_not_one_is_refused(zone: str) -> None:
    """The error names the setting."""
    with pytest.raises(SettingsError, match="FORESCORE_SCHEDULE__TIMEZONE"):
        Nights("0 2 * * *", zone)


def test_the_options_reach_the_job_itself() -> None:
    """J2: an option at the scheduler's level would be ignored for the job; these are the job's own."""
    settings = ScheduleSettings(misfire_grace_seconds=7200, timezone="Europe/Berlin")
    scheduler = build_scheduler(Nights(settings.cron, settings.timezone), settings, lambda: None)
    scheduler.start(paused=True)
    try:
        job, found = scheduler.get_job(JOB), effective(scheduler)
        assert len(scheduler.get_jobs()) == 1
        assert (job.coalesce, job.max_instances, job.misfire_grace_time) == (True, 1, 7200)
        assert (found.coalesce, found.max_instances, found.misfire_grace_seconds) == (True, 1, 7200)
        assert found.jitter_seconds is None
        assert found.trigger == "0 2 * * * (Europe/Berlin)"
        assert found.next_fire == job.next_run_time
        assert found.next_fire is not None
        assert found.next_fire.hour == 2
    finally:
        scheduler.shutdown()


@pytest.mark.parametrize(
    ("late", "event"),
    [(1.2, EVENT_JOB_EXECUTED), (3600, EVENT_JOB_EXECUTED), (5 * 3600, EVENT_JOB_MISSED)],
)
def test_a_late_start_is_a_start(late: float, event: int) -> None:
    """J1: 1.2 s or an hour late, the run is made; five hours late, catching up decides."""
    settings = ScheduleSettings()
    ran: list[bool] = []
    scheduler = build_scheduler(Nights(settings.cron, "UTC"), settings, lambda: ran.append(True))
    scheduler.start(paused=True)
    try:
        due = datetime.now(UTC) - timedelta(seconds=late)
        events = run_job(scheduler.get_job(JOB), "default", [due], "test")
        assert [one.code for one in events] == [event]
        assert ran == [True] * (event == EVENT_JOB_EXECUTED)
    finally:
        scheduler.shutdown()
