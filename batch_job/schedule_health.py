"""How the schedule is: what it knows of the store and of its runs, for its probes, metrics and alarm."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from batch_job.nights import Calendar, Sight, max_age
from batch_job.outcome import Outcome
from batch_job.schedule_metrics import ScheduleMetrics
from shared.clock import Clock
from shared.errors import StoreError
from shared.settings import ScheduleSettings
from shared.telemetry import Logger

REMIND_SECONDS = 3600.0
"""How often the alarm is repeated in the log."""

_log: Logger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    outcome: Outcome
    at: float


class Health:
    """Written by the schedule, read by its port. A probe asks nobody: it tells what is known."""

    def __init__(self, calendar: Calendar, settings: ScheduleSettings, clock: Clock, metrics: ScheduleMetrics) -> None:
        self.metrics = metrics
        self.sight: Sight | None = None
        self._calendar = calendar
        self._settings = settings
        self._clock = clock
        self._store_error: str | None = "the store was not asked yet"
        self._running_since: float | None = None
        self._last: _Ended | None = None
        self._alarmed_at: float | None = None

    @property
    def is_running(self) -> bool:
        return self._running_since is not None

    @property
    def store_up(self) -> bool:
        """Whether the store answered when it was last asked."""
        return self._store_error is None

    def saw(self, sight: Sight) -> None:
        """The store answered."""
        if self._store_error is not None and self.sight is not None:
            _log.info("store answers again")
        self.sight, self._store_error = sight, None
        self.update()

    def store_failed(self, error: StoreError) -> None:
        """The store did not answer; what was seen before stays known."""
        if self._store_error is None or (self.sight is None and str(error) != self._store_error):
            _log.warning("store does not answer", reason=str(error))
        self._store_error = str(error)
        self.update()

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the block runs, a run is at work."""
        self._running_since = self._clock.now()
        self.metrics.running(is_running=True)
        try:
            yield
        finally:
            self._running_since = None
            self.metrics.running(is_running=False)

    def ended(self, outcome: Outcome) -> None:
        """An attempt has ended."""
        self._last = _Ended(outcome=outcome, at=self._clock.now())
        self.metrics.run(outcome.kind, outcome.seconds)

    def age(self) -> float:
        """Seconds since the active snapshot was scored; infinite if there is none."""
        if self.sight is None or self.sight.active is None:
            return math.inf
        return self._clock.now() - self.sight.active.scored_at

    def max_age(self) -> float:
        """The age that is an alarm."""
        return max_age(self._calendar, self._now(), self._settings.max_age_seconds)

    def next_fire(self) -> datetime | None:
        """When the next run is due."""
        return next(iter(self._calendar.upcoming(self._now(), 1)), None)

    def update(self) -> None:
        """Sets the gauges that grow with time; called when they are read, too."""
        fire = self.next_fire()
        promoted = None if self.sight is None else self.sight.promoted_at
        self.metrics.times(next_fire=math.inf if fire is None else fire.timestamp(), last_success=promoted or 0)
        self.metrics.ages(age=self.age(), most=self.max_age())
        self.metrics.store(is_up=self._store_error is None)

    def alarm(self) -> bool:
        """Whether the active snapshot is too old; says so in the log, at first and every hour, and when it is over."""
        now, age, most = self._clock.now(), self.age(), self.max_age()
        if self.sight is None or (self.sight.active is None and self._settings.catch_up and self._last is None):
            return False  # nothing is known yet, or the first run of all is about to be made
        if age <= most:
            if self._alarmed_at is not None:
                _log.info("snapshot is young again", age_seconds=round(age))
            self._alarmed_at = None
            return False
        if self._alarmed_at is None or now - self._alarmed_at >= REMIND_SECONDS:
            self._alarmed_at = now
            snapshot = None if self.sight.active is None else self.sight.active.snapshot
            _log.error("snapshot is too old", snapshot=snapshot, age_seconds=age, max_age_seconds=most)
        return True

    def readiness(self) -> tuple[bool, dict[str, object]]:
        """Whether all is well, and the body of the probe."""
        age, most = self.age(), self.max_age()
        reason = self._store_error
        if reason is None and age > most:
            reason = (
                "there is no active snapshot" if age == math.inf else f"the active snapshot is older than {most:g} s"
            )
        status = "ready" if reason is None else "alarm"
        return reason is None, {"status": status, **({"reason": reason} if reason else {}), "checks": self._checks()}

    def _checks(self) -> dict[str, object]:
        active = None if self.sight is None else self.sight.active
        last, most, age = self._last, self.max_age(), self.age()
        return {
            "store": {"reachable": self._store_error is None},
            "snapshot": {
                "snapshot": None if active is None else active.snapshot,
                "scored_at": None if active is None else stamp(active.scored_at),
                "age_seconds": _finite(age),
                "max_age_seconds": _finite(most),
            },
            "run": {
                "running_since": stamp(self._running_since),
                "last_outcome": None if last is None else last.outcome.kind,
                "last_reason": None if last is None else last.outcome.reason,
                "last_ended_at": None if last is None else stamp(last.at),
                "next_fire_at": stamp(None if (fire := self.next_fire()) is None else fire.timestamp()),
                "lease": None if self.sight is None else self.sight.holder,
            },
        }

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)


def stamp(seconds: float | None) -> str | None:
    """The moment in ISO form, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def _finite(seconds: float) -> float | None:
    return round(seconds, 1) if math.isfinite(seconds) else None
