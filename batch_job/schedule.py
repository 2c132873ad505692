"""The schedule: one job in memory that is due by a cron line, one run at a time.

tick (every few seconds)  what the store says, the alarm, a wake-up where a night was missed
job (when it is due)      this night's run in a process of its own, tried again if it fails
"""

import heapq
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apscheduler.executors.base import BaseExecutor
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger

from shared.errors import SettingsError
from shared.settings import ScheduleSettings

JOB = "nightly"

_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = 5
_SHIFT = timedelta(hours=3)
"""More than a clock is ever set forward or back."""

_KNOWN = 8
_LOOK_BACK = (timedelta(hours=2), *(timedelta(days=days) for days in (1, 8, 32, 367, 9 * 366)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interval:
    """The time from one due moment to the next, and what follows."""

    last: datetime | None
    following: tuple[datetime, ...]

    def __contains__(self, now: datetime) -> bool:
        return self.last is not None and self.last <= now and bool(self.following) and now < self.following[0]


class Nights(BaseTrigger):  # type: ignore[misc] # apscheduler ships no types
    """The moments of a cron line in a time zone: each time on the wall exactly once.

    A time that the clock skips in spring counts by the clock before the change (02:30 is then 03:30), and one that
    comes twice in autumn counts the first time. Weekdays are those of cron: 0 and 7 are Sunday.
    """

    def __init__(self, cron: str, timezone: str) -> None:
        self.cron = cron
        self.zone = _zone(timezone)
        self._wall = _wall_times(cron)
        self._known: _Interval | None = None
        if not self.upcoming(datetime.now(UTC), 1):
            raise SettingsError(f"FORESCORE_SCHEDULE__CRON {cron!r}: is never due; write a day that exists")

    def last(self, now: datetime) -> datetime | None:
        """The latest due moment that is not after ``now``; None if there was none for years."""
        return self._around(now).last

    def upcoming(self, after: datetime, count: int) -> list[datetime]:
        """The next due moments."""
        if count > _KNOWN:
            return list(islice(self._after(after), count))
        return list(self._around(after).following[:count])

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The interface of apscheduler: the first moment after the previous one, or from now on."""
        start = now.astimezone(UTC)
        if previous_fire_time is None:
            return next(self._after(start - timedelta(microseconds=1)), None)
        return next(self._after(min(previous_fire_time.astimezone(UTC), start)), None)

    def __str__(self) -> str:
        return f"{self.cron} ({self.zone.key})"

    def _around(self, now: datetime) -> "_Interval":
        """Remembered until the next moment, since it is asked for every few seconds."""
        moment = now.astimezone(UTC)  # two moments of one zone are compared by the clock on the wall
        known = self._known
        if known is None or moment not in known:
            known = _Interval(last=self._last(moment), following=tuple(islice(self._after(moment), _KNOWN)))
            self._known = known
        return known

    def _last(self, now: datetime) -> datetime | None:
        for span in _LOOK_BACK:
            found = None
            for moment in self._after(now - span):
                if moment > now:
                    break
                found = moment
            if found is not None:
                return found
        return None

    def _after(self, start: datetime) -> Iterator[datetime]:
        """Due moments after ``start``, in order. Times on the wall come in order and their moments nearly so."""
        known: list[datetime] = []
        last = start.astimezone(UTC)
        for wall in self._walls(start):
            moment = wall.replace(tzinfo=self.zone).astimezone(UTC)
            while known and known[0] < moment - _SHIFT:
                last = max(last, heapq.heappop(known))
                yield last.astimezone(self.zone)
            if moment > last and moment not in known:
                heapq.heappush(known, moment)
        yield from (heapq.heappop(known).astimezone(self.zone) for _ in range(len(known)))

    def _walls(self, start: datetime) -> Iterator[datetime]:
        """Times on the wall, as if no clock were ever set."""
        moment = (start.astimezone(self.zone) - _SHIFT).replace(tzinfo=UTC)
        while (found := self._wall.get_next_fire_time(None, moment)) is not None:
            yield found.replace(tzinfo=None)
            moment = found + timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """What apscheduler's job really has."""

    trigger: str
    coalesce: bool
    max_instances: int
    misfire_grace_seconds: float | None
    jitter_seconds: float | None
    next_fire: datetime | None


def build_scheduler(
    trigger: Nights, settings: ScheduleSettings, attend: Callable[[], None], executor: BaseExecutor | None = None
) -> BackgroundScheduler:
    """The scheduler with its one job, not started. By default the job runs in a thread of its own."""
    scheduler = BackgroundScheduler(timezone=trigger.zone, executors={"default": executor or ThreadPoolExecutor(1)})
    scheduler.add_job(
        attend,
        trigger,
        id=JOB,
        name=JOB,
        coalesce=True,
        max_instances=1,
        misfire_grace_time=settings.misfire_grace_seconds,
    )
    return scheduler


def effective(scheduler: BackgroundScheduler) -> Effective:
    """The options of the job as apscheduler has them, once it was started: an option at a wrong level shows here."""
    job: Job = scheduler.get_job(JOB)
    return Effective(
        trigger=str(job.trigger),
        coalesce=job.coalesce,
        max_instances=job.max_instances,
        misfire_grace_seconds=job.misfire_grace_time,
        jitter_seconds=getattr(job.trigger, "jitter", None),
        next_fire=job.next_run_time,
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SettingsError(
            f"FORESCORE_SCHEDULE__TIMEZONE {name[:60]!r}: no such time zone; write it as Europe/Berlin or UTC"
        ) from None


def _wall_times(cron: str) -> CronTrigger:
    fields = cron.split()
    if len(fields) != _FIELDS:
        raise SettingsError(f"{_named(cron)}: five fields are wanted: minute, hour, day, month, weekday")
    minute, hour, day, month, weekday = fields
    if not {day[:1], weekday[:1]} & {"*", "?"}:
        raise SettingsError(f"{_named(cron)}: gives a day of the month and a weekday; give one and leave the other *")
    try:
        return CronTrigger(
            minute=minute,
            hour=hour,
            day=day.replace("?", "*"),
            month=month,
            day_of_week=_weekdays(weekday, cron),
            timezone=UTC,
        )
    except ValueError as error:
        raise SettingsError(f"{_named(cron)}: {error}") from None


def _weekdays(field: str, cron: str) -> str:
    """The weekdays by name: apscheduler counts from Monday, and cron from Sunday."""
    if field in {"*", "?"}:
        return "*"
    days: set[int] = set()
    for part in field.lower().split(","):
        found = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?", part)
        if found is None:
            raise SettingsError(f"{_named(cron)}: the weekday {part[:20]!r} is not one; write 1-5 or mon-fri")
        every, first, last, step = found.groups()
        start = 0 if every else _weekday(first, cron)
        end = 6 if every else start if last is None else _weekday(last, cron)
        days.update(range(start, end + 1 if end >= start else end + 8, max(1, int(step or 1))))
    return ",".join(dict.fromkeys(_WEEKDAYS[day % 7] for day in sorted(days)))


def _weekday(text: str, cron: str) -> int:
    number = _WEEKDAYS.index(text) if text in _WEEKDAYS else int(text) if text.isdecimal() else -1
    if not 0 <= number <= len(_WEEKDAYS):
        raise SettingsError(f"{_named(cron)}: the weekday {text[:20]!r} is not one; write 0 to 7, or sun to sat")
    return number


def _named(cron: str) -> str:
    return f"FORESCORE_SCHEDULE__CRON {cron[:60]!r}"
