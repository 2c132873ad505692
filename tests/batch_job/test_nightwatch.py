"""Each night has exactly one good run, or there is an alarm. The clock is the test's, the scheduler is the real one."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.schedule import World, days, utc
from support.snapshots import rollback

from batch_job.outcome import BUSY, DONE, FAILED, HELD, SKIPPED, STOPPED, STORE_DOWN, TIMED_OUT, Outcome
from shared.errors import StoreDown
from shared.snapshot import SnapshotState

Make = Callable[..., World]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a host; by default one whose active snapshot is of last night, at 20:00."""
    made: list[World] = []

    def make(begin: str = "2026-11-29 20:00", *, fresh: bool = True, **settings: Any) -> World:
        one = World(monkeypatch, begin, **settings)
        made.append(one)
        if fresh:
            one.publish()
        one.step()
        return one

    yield make
    for one in made:
        one.close()


def counted(world: World, outcome: str) -> float:
    value = world.health.metrics.registry.get_sample_value("forescore_schedule_runs_total", {"outcome": outcome})
    assert value is not None
    return value


def test_a_week_has_seven_runs(world: Make) -> None:
    """Each night at 02:00, once."""
    host = world()
    host.live("2026-12-06 20:00")
    assert host.runs == days("2026-11-30 02:00", 7)
    assert counted(host, DONE) == 7


def test_a_host_that_slept_through_the_night_catches_up_once(world: Make) -> None:
    """J1: asleep from 01:00 to 10:00, beyond the grace: one run at 10:00, and the next at 02:00 as ever."""
    host = world()
    host.live("2026-11-30 01:00")
    host.jump("2026-11-30 10:00")
    host.live("2026-12-01 04:00")
    assert host.runs == days("2026-11-30 02:00", 2)
    assert host.began[0] == utc("2026-11-30 10:00")


def test_a_host_that_slept_for_days_makes_one_run(world: Make) -> None:
    """Four nights missed are one run to make up for: the newest table is all that counts."""
    host = world()
    host.jump("2026-12-03 10:00")
    host.live("2026-12-03 20:00")
    assert host.runs == [utc("2026-12-03 02:00")]


def test_a_clock_that_jumps_over_two_o_clock(world: Make) -> None:
    """From 01:50 to 02:40 at once: within the grace, so the job runs as if it were late."""
    host = world()
    host.live("2026-11-30 01:50")
    host.jump("2026-11-30 02:40")
    host.live("2026-11-30 20:00")
    assert host.runs == [utc("2026-11-30 02:00")]
    assert host.began == [utc("2026-11-30 02:40")]


def test_a_clock_that_jumps_back_over_two_o_clock(world: Make) -> None:
    """02:00 comes twice: the second finds the night done."""
    host = world()
    host.live("2026-11-30 02:10")
    host.jump("2026-11-30 01:30")
    host.live("2026-11-30 20:00")
    assert host.runs == [utc("2026-11-30 02:00")]


@pytest.mark.parametrize(
    ("begin", "end", "due", "following"),
    [
        ("2026-03-28 20:00", "2026-03-30 12:00", "2026-03-29 01:30", "2026-03-30 00:30"),
        ("2026-10-24 20:00", "2026-10-26 12:00", "2026-10-25 00:30", "2026-10-26 01:30"),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_a_night_in_which_the_clock_is_set(
    world: Make, begin: str, end: str, due: str, following: str, *, restart: bool
) -> None:
    """02:30 in Berlin: in spring it does not exist, in autumn it comes twice; one run each, also with a restart."""
    host = world(begin, cron="30 2 * * *", timezone="Europe/Berlin")
    if restart:
        host.live((utc(due) + timedelta(minutes=20)).strftime("%Y-%m-%d %H:%M"), every=60)
        host.close()
        host.start()
    host.live(end, every=60)
    assert host.runs == [utc(due), utc(following)]


def test_a_start_after_a_missed_night_catches_up_at_once(world: Make) -> None:
    """A host that was off at 02:00 runs when it comes up, once."""
    host = world("2026-11-30 09:00", fresh=False)
    assert host.runs == [utc("2026-11-30 02:00")]
    host.live("2026-11-30 20:00")
    assert len(host.runs) == 1


def test_a_start_after_a_night_that_is_done_does_nothing(world: Make) -> None:
    """The active snapshot was scored since the run was due."""
    host = world("2026-11-30 09:00")
    host.live("2026-11-30 20:00")
    assert host.runs == []


def test_without_catching_up_a_missed_night_is_an_alarm(world: Make) -> None:
    """FORESCORE_SCHEDULE__CATCH_UP=false: nothing runs, until the age of the snapshot says so aloud."""
    host = world("2026-11-29 20:00", catch_up=False)
    with capture_logs() as logs:
        host.jump("2026-12-01 10:00")
        host.live("2026-12-01 12:00")
    assert host.runs == []
    assert host.health.readiness()[0] is False
    assert [entry["log_level"] for entry in logs if entry["event"] == "snapshot is too old"] == ["error"] * 3


def test_what_was_published_by_hand_counts(world: Make) -> None:
    """A backfill after the run was due covers the night: no second run."""
    host = world()
    host.live("2026-11-30 01:55")
    host.clock.time = utc("2026-11-30 02:00").timestamp()
    host.publish()
    host.step()
    host.live("2026-11-30 20:00")
    assert host.runs == []
    assert counted(host, SKIPPED) == 1


def test_a_rollback_is_not_undone(world: Make) -> None:
    """Somebody rolled back this night's snapshot: the schedule leaves it so until the next night."""
    host = world()
    host.live("2026-11-30 09:00")
    rollback(host.store)
    host.live("2026-11-30 20:00")
    assert host.runs == [utc("2026-11-30 02:00")]
    host.live("2026-12-01 03:00")
    assert len(host.runs) == 2


def test_a_snapshot_that_was_promoted_late_does_not_cover_the_next_night(world: Make) -> None:
    """Scored at 01:00 and promoted at 02:30: the run that was due at 02:00 is still made."""
    host = world()
    host.clock.time = utc("2026-11-30 01:00").timestamp()
    late = host.write()
    host.clock.time = utc("2026-11-30 01:59").timestamp()
    lease = host.store.leases.acquire("backfill", 1800)
    host.live("2026-11-30 02:25")
    host.store.control.promote(late.snapshot, lease, by="backfill")
    host.store.leases.release(lease)
    host.live("2026-11-30 03:00")
    assert host.runs == [utc("2026-11-30 02:00")]


def test_a_run_that_fails_is_tried_again_with_a_longer_pause_each_time(world: Make) -> None:
    """Backoff inside the night: one minute, then two; the third attempt is good."""
    host = world()
    host.plan.extend([host.ended(FAILED), host.ended(TIMED_OUT)])
    host.live("2026-11-30 20:00")
    assert host.runs == [utc("2026-11-30 02:00")] * 3
    assert host.pauses == [60, 120]
    assert (counted(host, FAILED), counted(host, TIMED_OUT), counted(host, DONE)) == (1, 1, 1)


def test_a_night_is_given_up_after_its_attempts(world: Make) -> None:
    """Three failures: nothing more until the next night, and the log says so."""
    host = world()
    host.plan.extend([host.ended(FAILED)] * 3)
    with capture_logs() as logs:
        host.live("2026-11-30 20:00")
    assert len(host.runs) == 3
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"][-1].startswith("given up")
    host.live("2026-12-01 03:00")
    assert host.runs[3:] == [utc("2026-12-01 02:00")]


def test_attempts_end_where_the_next_night_begins(world: Make) -> None:
    """A pause that would reach into the next night ends with it, and that night has its own run."""
    host = world(attempts=5, backoff_seconds=20 * 3600)
    host.plan.extend([host.ended(FAILED)] * 2)
    host.live("2026-12-01 04:00")
    assert host.runs == [utc("2026-11-30 02:00"), utc("2026-11-30 02:00"), utc("2026-12-01 02:00")]


def test_a_held_snapshot_is_not_tried_again(world: Make) -> None:
    """A gate's refusal needs a person: one run, an error in the log, no retry."""
    host = world()

    def held() -> Outcome:
        host.write(SnapshotState.HELD)
        return Outcome(kind=HELD, reason="coverage")

    host.plan.append(held)
    with capture_logs() as logs:
        host.live("2026-11-30 20:00")
    assert len(host.runs) == 1
    assert {"outcome": "held", "reason": "coverage"}.items() <= next(
        entry for entry in logs if entry["event"] == "run ended"
    ).items()


def test_a_held_snapshot_of_the_night_is_known_after_a_restart(world: Make) -> None:
    """What waits for a person in the store is not scored again by a new process."""
    host = world()
    host.clock.time = utc("2026-11-30 02:30").timestamp()
    host.write(SnapshotState.HELD)
    host.close()
    host.start()
    host.live("2026-11-30 20:00")
    assert host.runs == []


def test_a_store_that_is_down_costs_no_attempt(world: Make) -> None:
    """Down from 01:00 to 07:00: no run fails of it, and one is made when it answers again."""
    host = world()
    host.live("2026-11-30 01:00")
    host.memory.failure = StoreDown("gone")
    host.live("2026-11-30 07:00")
    assert host.runs == []
    assert counted(host, STORE_DOWN) == 1
    assert host.health.readiness()[0] is False
    host.memory.failure = None
    host.live("2026-11-30 08:00")
    assert host.runs == [utc("2026-11-30 02:00")]
    assert host.health.readiness()[0] is True


@pytest.mark.parametrize("catch_up", [True, False])
def test_somebody_elses_run_is_named_and_looked_at_again(world: Make, *, catch_up: bool) -> None:
    """J9: the firing is skipped with the holder in the log; when it ends without a snapshot, the night is run."""
    host = world(catch_up=catch_up)
    host.clock.time = utc("2026-11-30 01:55").timestamp()
    lease = host.store.leases.acquire("ann@host 7 run 1a2b3c", 2 * 3600)
    with capture_logs() as logs:
        host.live("2026-11-30 03:00")
    assert host.runs == []
    reasons = [entry["reason"] for entry in logs if entry["event"] == "run ended"]
    assert reasons == ["the lease is held by ann@host 7 run 1a2b3c"]
    host.store.leases.release(lease)
    host.live("2026-11-30 04:00")
    assert host.runs == [utc("2026-11-30 02:00")]


def test_a_run_that_finds_the_lease_taken_is_no_failure(world: Make) -> None:
    """Between the look and the run somebody else was quicker: no attempt is lost, the night is looked at again."""
    host = world()
    host.plan.append(host.ended(BUSY, seconds=1))
    host.live("2026-11-30 03:00")
    assert host.runs == [utc("2026-11-30 02:00")] * 2
    assert host.pauses == []


def test_two_schedules_make_one_run(world: Make) -> None:
    """J5: whoever comes second finds the night done."""
    first = world()
    first.live("2026-11-30 02:10")
    second = world("2026-11-30 02:10", memory=first.memory, fresh=False)
    second.live("2026-11-30 20:00")
    assert first.runs == [utc("2026-11-30 02:00")]
    assert second.runs == []


def test_a_run_that_only_says_it_is_done_is_not_made_for_ever(world: Make) -> None:
    """The night is still open, as after a bundle was replaced by another model's: one run, and an error."""
    host = world()
    host.plan.append(host.ended(DONE))
    with capture_logs() as logs:
        host.live("2026-11-30 20:00")
    assert len(host.runs) == 1
    assert any("its snapshot is not active" in entry["event"] for entry in logs if entry["log_level"] == "error")


def test_a_store_that_came_back_empty_is_filled_again(world: Make) -> None:
    """The store is a cache: what it lost is made anew, without waiting for the night."""
    host = world()
    host.live("2026-11-30 10:00")
    host.memory.lose_everything()
    host.live("2026-11-30 20:00")
    assert host.runs == [utc("2026-11-30 02:00")] * 2
    assert host.health.readiness()[0] is True


def test_nothing_is_begun_once_it_is_told_to_end(world: Make) -> None:
    """While it pauses between two attempts it is told to end: no further attempt."""
    host = world()
    host.plan.extend([host.ended(FAILED)] * 2)
    host.ending = True
    host.clock.time = utc("2026-11-30 02:00").timestamp()
    host.scheduler._process_jobs()
    assert len(host.runs) == 1


def test_a_run_that_was_stopped_with_the_schedule_is_not_given_up(world: Make) -> None:
    """The next process resumes it."""
    host = world()
    host.plan.append(host.ended(STOPPED))
    host.live("2026-11-30 02:00")
    host.close()
    host.start()
    host.live("2026-11-30 02:30")
    assert host.runs == [utc("2026-11-30 02:00")] * 2


def test_the_alarm_is_on_the_age_of_the_snapshot(world: Make) -> None:
    """Not on a job that failed: at one and a half periods, 36 hours, whatever the reason; and it ends by itself."""
    host = world(attempts=1)
    host.plan.extend([host.ended(FAILED)] * 2)
    host.live("2026-12-01 07:50")
    assert host.health.max_age() == 36 * 3600
    assert host.health.alarm() is False
    with capture_logs() as logs:
        host.live("2026-12-01 08:10")
    assert host.health.alarm() is True
    assert [entry["event"] for entry in logs] == ["snapshot is too old"]
    host.live("2026-12-02 02:10")
    assert host.health.alarm() is False


@pytest.mark.parametrize(
    ("cron", "told", "hours"),
    [("0 2 * * *", 0, 36), ("0 2 * * 1-5", 0, 108), ("0 */6 * * *", 0, 9), ("0 2 * * *", 3600, 1)],
)
def test_the_greatest_age_follows_the_longest_period(world: Make, cron: str, told: float, hours: float) -> None:
    """A schedule of weekdays is not alarmed by a weekend; a setting says otherwise."""
    assert world(cron=cron, max_age_seconds=told).health.max_age() == hours * 3600
