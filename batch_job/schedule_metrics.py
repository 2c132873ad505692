"""The schedule's own metrics, in base units. docs/metrics.md says the same, and a test holds them equal."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from batch_job.outcome import OUTCOMES


class ScheduleMetrics:
    """Every metric of ``forescore schedule``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._runs = Counter(
            "forescore_schedule_runs_total", "Attempts of scheduled runs, by outcome.", ["outcome"], registry=registry
        )
        for outcome in OUTCOMES:
            self._runs.labels(outcome)
        self._running = Gauge("forescore_schedule_running", "1 while a run is at work.", registry=registry)
        self._run_duration = Gauge(
            "forescore_schedule_last_run_duration_seconds", "How long the last attempt took.", registry=registry
        )
        self._last_success = Gauge(
            "forescore_schedule_last_success_timestamp_seconds",
            "When a snapshot was last promoted, by whomever.",
            registry=registry,
        )
        self._next_fire = Gauge(
            "forescore_schedule_next_fire_timestamp_seconds", "When the next run is due.", registry=registry
        )
        self._age = Gauge(
            "forescore_schedule_snapshot_age_seconds",
            "Time since the active snapshot was scored, +Inf if there is none.",
            registry=registry,
        )
        self._max_age = Gauge(
            "forescore_schedule_max_age_seconds", "The age of the active snapshot that is an alarm.", registry=registry
        )
        self._store_up = Gauge(
            "forescore_schedule_store_up", "1 if the store answered when it was last asked.", registry=registry
        )

    def run(self, outcome: str, seconds: float) -> None:
        """One attempt, as ``batch_job.outcome`` names what became of it."""
        self._runs.labels(outcome).inc()
        self._run_duration.set(seconds)

    def running(self, *, is_running: bool) -> None:
        """Whether a run is at work."""
        self._running.set(is_running)

    def times(self, *, next_fire: float, last_success: float) -> None:
        """Epoch seconds of the next run and of the last promotion."""
        self._next_fire.set(next_fire)
        self._last_success.set(last_success)

    def ages(self, *, age: float, most: float) -> None:
        """The age of the active snapshot, and the one that is an alarm."""
        self._age.set(age)
        self._max_age.set(most)

    def store(self, *, is_up: bool) -> None:
        """Whether the store answered."""
        self._store_up.set(is_up)
