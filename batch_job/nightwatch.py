"""Who sees to it that each night has its run: exactly one that is good, or an alarm.

``attend`` is the scheduled job. ``tick`` looks at the clock and at the store every few seconds: it finds the nights
that the job missed, because the host slept, the clock was set, the store was down, or somebody else was at work.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from batch_job.nights import Calendar, Standing, look, standing
from batch_job.outcome import BUSY, DONE, FAILED, HELD, SKIPPED, STOPPED, STORE_DOWN, TIMED_OUT, Outcome
from batch_job.schedule_health import Health
from shared.clock import Clock
from shared.errors import StoreError
from shared.settings import ScheduleSettings
from shared.store.interfaces import Store
from shared.telemetry import Logger

LATE = timedelta(seconds=30)
"""So long the scheduled job is left to begin by itself."""

_TOLD = ("state", "run_key", "model", "model_version", "snapshot", "data_as_of", "output_path")
"""What the line of a run has of its report, beside its counts."""

_log: Logger = structlog.get_logger()


class NightWatch:
    """``run`` does the run of the night that was due then. ``pause`` waits, and says whether it was told to end."""

    def __init__(  # noqa: PLR0913 - what it works with, each passed in
        self,
        *,
        calendar: Calendar,
        store: Store,
        settings: ScheduleSettings,
        health: Health,
        clock: Clock,
        run: Callable[[datetime], Outcome],
        pause: Callable[[float], bool],
    ) -> None:
        self._calendar = calendar
        self._store = store
        self._settings = settings
        self._health = health
        self._clock = clock
        self._run = run
        self._pause = pause
        self._begun = self._now()
        self._wanted: datetime | None = None
        """The night that a job came for and that is not done with."""
        self._given_up: datetime | None = None

    def attend(self) -> None:
        """Sees to the night that was due last: runs it, and again after a failure, until it is done or given up."""
        due = self._calendar.last(self._now())
        if due is None or due == self._given_up:
            return
        self._wanted = due
        with self._health.running():
            if self._attempts(due):
                self._wanted = None
            elif due != (latest := self._calendar.last(self._now())):
                self._wanted = latest
        self._look()

    def tick(self) -> bool:
        """Looks at everything; whether the job is to be woken, since a night needs a run and none will come."""
        self._look()
        self._health.alarm()
        now, sight = self._now(), self._health.sight
        due = self._calendar.last(now)
        if (
            due is None
            or sight is None
            or due == self._given_up
            or self._health.is_running
            or not self._health.store_up
        ):
            return False
        if not (self._settings.catch_up or due == self._wanted):
            return False
        if standing(due, sight) is not Standing.OPEN or sight.holder is not None:
            return False
        return now - due >= LATE or due <= self._begun

    def _attempts(self, due: datetime) -> bool:
        """Whether the night needs nothing more."""
        for attempt in range(1, self._settings.attempts + 1):
            outcome = self._attempt(due)
            self._health.ended(outcome)
            self._tell(outcome, due, attempt)
            if outcome.kind in {DONE, SKIPPED}:
                self._require_done(due)
                return True
            if outcome.kind in {BUSY, STOPPED, STORE_DOWN}:
                return False
            if outcome.kind == HELD:
                break
            if attempt < self._settings.attempts and not self._waited(attempt, due):
                return False
        self._given_up = due
        _log.error("given up until the next run is due", due=due.isoformat())
        return True

    def _require_done(self, due: datetime) -> None:
        """A run that says it is done, of a night that is not, must not be made for ever."""
        self._look()
        sight = self._health.sight
        if self._health.store_up and sight is not None and standing(due, sight) is Standing.OPEN:
            self._given_up = due
            _log.error("run is done and its snapshot is not active; see which model the bundle is of", due=str(due))

    def _attempt(self, due: datetime) -> Outcome:
        try:
            sight = look(self._store)
        except StoreError as error:
            self._health.store_failed(error)
            return Outcome(kind=STORE_DOWN, reason=str(error))
        self._health.saw(sight)
        found = standing(due, sight)
        if found is Standing.DONE:
            return Outcome(kind=SKIPPED)
        if found is Standing.HELD:
            return Outcome(kind=HELD, reason=f"snapshot {sight.held[0].snapshot} waits for a person")
        if sight.holder is not None:
            return Outcome(kind=BUSY, reason=f"the lease is held by {sight.holder}")
        _log.info("run begins", due=due.isoformat())
        return self._run(due)

    def _waited(self, attempt: int, due: datetime) -> bool:
        """Pauses before the next attempt; False if the night is over, or all is."""
        following = self._calendar.upcoming(due, 1)
        left = (following[0] - self._now()).total_seconds() if following else float("inf")
        seconds = self._settings.backoff_seconds * 2 ** (attempt - 1)
        return not self._pause(min(seconds, max(left, 0))) and self._calendar.last(self._now()) == due

    def _tell(self, outcome: Outcome, due: datetime, attempt: int) -> None:
        counts = outcome.report.get("counts") or {}
        facts = {name: outcome.report.get(name) for name in _TOLD}
        facts |= {name: counts.get(name) for name in ("input", "scored", "rejected", "duplicate")}
        known = {name: value for name, value in facts.items() if value is not None}
        event = {"due": due.isoformat(), "attempt": attempt, "seconds": round(outcome.seconds, 3), **known}
        if outcome.reason is not None:
            event["reason"] = outcome.reason
        if outcome.kind in {FAILED, TIMED_OUT, HELD}:
            _log.error("run ended", outcome=outcome.kind, **event)
        else:
            _log.info("run ended", outcome=outcome.kind, **event)

    def _look(self) -> None:
        try:
            self._health.saw(look(self._store))
        except StoreError as error:
            self._health.store_failed(error)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)
