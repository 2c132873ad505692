"""The metrics of the service, in base units, each in the registry that it is given. Never an id or a feature value."""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shared.codes import Code
from shared.telemetry import StageTimer

NO_SNAPSHOT = float("inf")
"""The age of a snapshot that is not there: older than any alarm's threshold."""
_HOUR = 3600
_DAY = 24 * _HOUR
_AGES = (60, 300, 900, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 36 * _HOUR, 2 * _DAY, 7 * _DAY, 30 * _DAY)
"""From a minute to 30 days, close together around the age of a nightly run's scores."""


class ActiveSnapshot(Collector):
    """``forescore_snapshot_info``: one sample, of the snapshot that is active now.

    No gauge: that would keep the labels of every snapshot there ever was, and one that several workers write would
    name two of them around a promotion. Each worker knows the pointer, so the one that is asked says it.
    """

    _labelnames = ("model", "model_version", "snapshot")  # where those of prometheus_client's own metrics are

    def __init__(self) -> None:
        self.labels: tuple[str, str, str] | None = None

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The metric without a sample."""
        yield GaugeMetricFamily("forescore_snapshot_info", "1 for the active snapshot.", labels=self._labelnames)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The metric, with its sample once a snapshot is known."""
        for family in self.describe():
            if self.labels is not None:
                family.add_metric(self.labels, 1)
            yield family


class Metrics:
    """Every metric of the service, in base units. docs/metrics.md says the same, and a test holds them equal."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._requests = Counter(
            "forescore_requests_total", "Requests answered.", ["route", "status"], registry=registry
        )
        self._request_duration = Histogram(
            "forescore_request_duration_seconds",
            "Time from a request to its answer.",
            ["route"],
            registry=registry,
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
        )
        self._lines_left_out = Counter(
            "forescore_request_lines_left_out_total",
            "Answered requests without a log line, as FORESCORE_LOG_REQUESTS says.",
            registry=registry,
        )
        self._stage_duration = Histogram(
            "forescore_stage_duration_seconds",
            "Time of one stage of a request: lookup, features, encode, queue, forward, "
            "flight (joined a computation that another request began).",
            ["stage"],
            registry=registry,
            buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1),
        )
        self._lookups = Counter(
            "forescore_lookups_total", "Entities looked up in the store, by outcome.", ["outcome"], registry=registry
        )
        self._served_age = Histogram(
            "forescore_served_score_age_seconds",
            "Age of the scores that were served from the cache.",
            registry=registry,
            buckets=_AGES,
        )
        self._flights_joined = Counter(
            "forescore_flights_joined_total",
            "Entities whose score was being computed already for another request, which this one joined.",
            registry=registry,
        )
        self._unknown_remembered = Counter(
            "forescore_unknown_remembered_total",
            "Entities that no feature source was asked for, since none had them a moment ago.",
            registry=registry,
        )
        self._renewals = Counter(
            "forescore_renewals_total",
            "Scores near their greatest age, by whether they were scored anew in the background.",
            ["outcome"],
            registry=registry,
        )
        self._forward_rows = Histogram(
            "forescore_forward_rows",
            "Rows of one forward pass; its count is the number of passes.",
            registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        )
        self._queue_rows = Gauge(
            "forescore_queue_rows",
            "Rows that wait for a forward pass.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._shed_rows = Counter(
            "forescore_shed_rows_total",
            "Rows refused because more was waiting than could be scored in time, by reason.",
            ["reason"],
            registry=registry,
        )
        self._rejections = Counter(
            "forescore_rejections_total", "Rows rejected online, by code.", ["code"], registry=registry
        )
        self._write_backs = Counter(
            "forescore_write_backs_total",
            "Online scores offered to the active snapshot, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._source_failures = Counter(
            "forescore_feature_source_failures_total",
            "Questions to a feature source that failed or took too long.",
            ["source"],
            registry=registry,
        )
        self._breaker_open = Gauge(
            "forescore_breaker_open",
            "1 while the store is not asked because it failed.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._pointer_age = Gauge(
            "forescore_pointer_age_seconds",
            "Time since the active pointer was last read.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._snapshot_age = Gauge(
            "forescore_snapshot_age_seconds",
            "Time since the active snapshot was scored.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._active_snapshot = ActiveSnapshot()
        registry.register(self._active_snapshot)
        self._parity_exact = Gauge(
            "forescore_parity_exact",
            "1 where cached and online scores are proved to be the same bits, 0 where they agree within a tolerance.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._parity_exact.set(1)  # until a snapshot says otherwise: a worker that loads knows nothing against it

    def request(self, route: str, status: int, seconds: float, stages: StageTimer) -> None:
        """One answered request. ``route`` is the route's pattern, never the path with its id."""
        self._requests.labels(route, str(status)).inc()
        self._request_duration.labels(route).observe(seconds)
        for stage, spent in stages.seconds.items():
            self._stage_duration.labels(stage).observe(spent)

    def line_left_out(self) -> None:
        """One answered request that has no log line, because the settings say so."""
        self._lines_left_out.inc()

    def tally(self, route: str) -> "HitTally":
        """Counts a route's hits together."""
        return HitTally(
            requests=lambda status: self._requests.labels(route, str(status)),
            duration=self._request_duration.labels(route),
            lookup=self._stage_duration.labels("lookup"),
            age=self._served_age,
            hits=self._lookups.labels("hit"),
        )

    def lookup(self, outcome: str, entities: int = 1) -> None:
        """Entities that were looked up: hit, stale, rejected, absent, lost, down."""
        self._lookups.labels(outcome).inc(entities)

    def served(self, age: float) -> None:
        """One score that was answered from the cache, so many seconds old."""
        self._served_age.observe(age)

    def joined(self, entities: int) -> None:
        """Entities whose computation another request began."""
        self._flights_joined.inc(entities)

    def remembered(self, entities: int) -> None:
        """Entities known to be unknown."""
        self._unknown_remembered.inc(entities)

    def renewals(self, outcome: str, entities: int) -> None:
        """Scores near their greatest age: begun, over_budget."""
        self._renewals.labels(outcome).inc(entities)

    def forward(self, rows: int) -> None:
        """One forward pass."""
        self._forward_rows.observe(rows)

    def queue(self, rows: int) -> None:
        """Rows that wait for a forward pass."""
        self._queue_rows.set(rows)

    def shed(self, reason: str, rows: int) -> None:
        """Rows that were refused: queue_full, deadline."""
        self._shed_rows.labels(reason).inc(rows)

    def rejection(self, code: Code) -> None:
        """One row that was rejected online."""
        self._rejections.labels(code.text).inc()

    def write_back(self, outcome: str, scores: int = 1) -> None:
        """Online scores: written, bucket_gone, over_budget, failed, overtaken (by new features of the entity)."""
        if scores:
            self._write_backs.labels(outcome).inc(scores)

    def feature_source_failed(self, source: str) -> None:
        """One question to a feature source that brought no answer."""
        self._source_failures.labels(source).inc()

    def breaker(self, *, is_open: bool) -> None:
        """Whether the store is asked at all."""
        self._breaker_open.set(is_open)

    def ages(self, *, pointer: float, snapshot: float | None) -> None:
        """Seconds since the pointer was read and since the active snapshot was scored, if there is one."""
        self._pointer_age.set(pointer)
        self._snapshot_age.set(NO_SNAPSHOT if snapshot is None else snapshot)

    def active(self, *, model: str, model_version: str, snapshot: str, exact: bool) -> None:
        """Names the active snapshot in place of the one before, and whether online scores equal its scores."""
        self._active_snapshot.labels = (model, model_version, snapshot)
        self._parity_exact.set(exact)


class HitTally:
    """Hits, kept until ``flush`` counts them: a lock for each would take longer than the answer."""

    def __init__(
        self,
        *,
        requests: Callable[[int], Counter],
        duration: Histogram,
        lookup: Histogram,
        age: Histogram,
        hits: Counter,
    ) -> None:
        self._requests = requests
        self._duration = duration
        self._lookup = lookup
        self._age = age
        self._hits = hits
        self._statuses: list[int] = []
        self._seconds: list[float] = []
        self._lookups: list[float] = []
        self._ages: list[float] = []

    def add(self, status: int, seconds: float, lookup: float, age: float) -> None:
        """One hit of a score of that age, answered in so many seconds, of which its look-up took ``lookup``."""
        self._statuses.append(status)
        self._seconds.append(seconds)
        self._lookups.append(lookup)
        self._ages.append(max(0.0, age))

    def flush(self) -> None:
        """Counts them."""
        for status in set(self._statuses):
            self._requests(status).inc(self._statuses.count(status))
        self._hits.inc(len(self._statuses))
        _observe(self._duration, self._seconds)
        _observe(self._lookup, self._lookups)
        _observe(self._age, self._ages)
        for kept in (self._statuses, self._seconds, self._lookups, self._ages):
            kept.clear()


def _observe(histogram: Histogram, values: list[float]) -> None:
    """``observe`` for each value, with one lock for each bucket instead of two for each value."""
    places = [bisect_left(histogram._upper_bounds, value) for value in values]  # noqa: SLF001 - it has no other way in
    for place in set(places):
        histogram._buckets[place].inc(places.count(place))  # noqa: SLF001 - the same
    histogram._sum.inc(sum(values))  # noqa: SLF001 - the same
