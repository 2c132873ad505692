"""The schedule with a clock that the test sets: apscheduler, the watch, a store, and runs made of nothing."""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.base import STATE_RUNNING
from prometheus_client import CollectorRegistry
from support.snapshots import load, promote, snapshot_meta

from batch_job.nightwatch import NightWatch
from batch_job.outcome import DONE, Outcome
from batch_job.schedule import JOB, Nights, build_scheduler
from batch_job.schedule_health import Health
from batch_job.schedule_metrics import ScheduleMetrics
from shared.settings import ScheduleSettings
from shared.snapshot import SnapshotMeta, SnapshotState
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore
from shared.ulid import ulid

Run = Callable[[], Outcome]


def utc(text: str) -> datetime:
    """``2026-11-30 02:00`` as a moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class World:
    """A host that schedules. ``plan`` holds what the next runs do; a run without a plan is good and takes a minute."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, begin: str, *, memory: MemoryStore | None = None, **settings: Any
    ) -> None:
        self.clock = FrozenClock(utc(begin).timestamp())
        self.memory = memory or MemoryStore("churn", self.clock)
        self.store = self.memory.store
        self.settings = ScheduleSettings.model_validate(settings)
        self.nights = Nights(self.settings.cron, self.settings.timezone)
        self.health = Health(self.nights, self.settings, self.clock, ScheduleMetrics(CollectorRegistry()))
        self.runs: list[datetime] = []
        self.began: list[datetime] = []
        self.pauses: list[float] = []
        self.plan: deque[Run] = deque()
        self.ending = False
        self._numbers = 0
        self._patch(monkeypatch)
        self.start()

    def start(self) -> None:
        """The process begins."""
        self.watch = NightWatch(
            calendar=self.nights,
            store=self.store,
            settings=self.settings,
            health=self.health,
            clock=self.clock,
            run=self._run,
            pause=self._pause,
        )
        self.scheduler = build_scheduler(self.nights, self.settings, self.watch.attend, DebugExecutor())
        self.scheduler.start(paused=True)
        self.scheduler.wakeup = lambda: None  # nothing happens but by the test's own step
        self.scheduler.state = STATE_RUNNING

    def close(self) -> None:
        del self.scheduler.wakeup
        self.scheduler.shutdown()

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)

    def step(self) -> None:
        """What the process does every few seconds."""
        self.scheduler._process_jobs()
        if self.watch.tick():
            self.scheduler.modify_job(JOB, next_run_time=self.now)
            self.scheduler._process_jobs()

    def jump(self, moment: str) -> None:
        """The clock is set, or the host slept: nothing happened in between."""
        self.clock.time = utc(moment).timestamp()
        self.step()

    def live(self, until: str, every: float = 300) -> None:
        """Time passes, with a step now and then."""
        end = utc(until).timestamp()
        while self.clock.now() < end:
            self.clock.advance(min(every, end - self.clock.now()))
            self.step()

    def publish(self, **changes: object) -> SnapshotMeta:
        """A snapshot that was scored now becomes active."""
        meta = self.write(**changes)
        promote(self.store, meta.snapshot)
        return meta

    def write(self, state: SnapshotState = SnapshotState.READY, **changes: object) -> SnapshotMeta:
        """A snapshot that was scored now is in the store."""
        self._numbers += 1
        name = ulid(int(self.clock.now() * 1000), self._numbers.to_bytes(10))
        meta = snapshot_meta(f"1-{name}", entities=1, scored_at=int(self.clock.now()), **changes)
        load(self.store, meta, {"a": 0.5})
        self.store.control.mark(meta.snapshot, state)
        return meta

    def ended(self, kind: str, *, seconds: float = 60, reason: str | None = None) -> Run:
        """A run that takes so long and ends so."""

        def run() -> Outcome:
            self.clock.advance(seconds)
            return Outcome(kind=kind, seconds=seconds, reason=reason)

        return run

    def _run(self, due: datetime) -> Outcome:
        self.runs.append(due.astimezone(UTC))
        self.began.append(self.now)
        if self.plan:
            return self.plan.popleft()()
        meta = self.publish()
        self.clock.advance(60)
        return Outcome(kind=DONE, seconds=60, report={"snapshot": meta.snapshot})

    def _pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.clock.advance(seconds)
        return self.ending

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = self

        class Told(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:
                return world.now.astimezone(tz)

        for module in ("schedulers.base", "executors.base"):
            monkeypatch.setattr(f"apscheduler.{module}.datetime", Told)


def days(first: str, count: int) -> list[datetime]:
    """That moment on so many days in a row."""
    return [utc(first) + timedelta(days=day) for day in range(count)]
