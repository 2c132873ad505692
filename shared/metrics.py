"""The metrics of the service, in base units, each in the registry that it is given. Never an id or a feature value."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from shared.active_snapshot import ActiveSnapshot
from shared.codes import Code
from shared.tallies import HitTally, ScoredTally
from shared.telemetry import StageTimer

NO_SNAPSHOT = float("inf")
"""The age of a snapshot that is not there: older than any alarm's threshold."""
_HOUR = 3600
_DAY = 24 * _HOUR
LOOKUPS = ("hit", "file", "stale", "rejected", "absent", "lost", "down")
RUNGS = ("store", "file", "online", "refused")
RUNG_FAILURES = (("store", "down"), ("store", "lost"), ("file", "missing"), ("file", "late"), ("file", "lost"))
REFUSED = (
    *("key", "scope", "rate", "rate_per_key", "rows", "rows_per_key"),
    *("slow_head", "large_head", "no_request", "connections", "delay"),
)
WRITE_BACKS = ("written", "bucket_gone", "over_budget", "failed", "overtaken")
RENEWALS = ("begun", "over_budget")
SHED = ("queue_full", "deadline")
_AGES = (60, 300, 900, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 36 * _HOUR, 2 * _DAY, 7 * _DAY, 30 * _DAY)
"""From a minute to 30 days, close together around the age of a nightly run's scores."""


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
            "Time of one stage of a request: lookup (of that, in the snapshot's file: file), features, encode, queue, "
            "forward, "
            "flight (joined a computation that another request began).",
            ["stage"],
            registry=registry,
            buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1),
        )
        self._lookups = Counter(
            "forescore_lookups_total",
            "Entities looked up in the active snapshot, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._answers = Counter(
            "forescore_answers_total",
            "Scores answered, by the rung of the ladder that they came from: store, file, online; and those refused "
            "because no rung had them just now.",
            ["rung"],
            registry=registry,
        )
        self._rung_failures = Counter(
            "forescore_rung_failures_total",
            "Entities that a rung of the ladder could not tell of: store (down, lost), file (missing, late, lost).",
            ["rung", "reason"],
            registry=registry,
        )
        self._file_open = Gauge(
            "forescore_snapshot_file_open",
            "1 where the file of the active snapshot is open, to stand in for the store.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._store_there = Gauge(
            "forescore_store_configured",
            "0 where the service has no store, and looks scores up in the snapshot's file alone.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._store_there.set(1)
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
        self._refused = Counter(
            "forescore_refused_requests_total",
            "Requests and connections refused before they were looked at, by reason: key, scope, rate, rate_per_key, "
            "rows, rows_per_key, slow_head, large_head, no_request, connections, delay (of the event loop).",
            ["reason"],
            registry=registry,
        )
        self._key_rows = Counter(
            "forescore_key_rows_total",
            "Rows that were let in, by the name of the key; names are those of the file of keys.",
            ["key"],
            registry=registry,
        )
        self._rates_unknown = Counter(
            "forescore_rates_unknown_total",
            "Requests let in without a look at their rate, since the store that counts it did not answer.",
            registry=registry,
        )
        self._keys_unread = Gauge(
            "forescore_keys_unread",
            "1 while the file of keys cannot be read, and those read before hold.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._connections = Gauge(
            "forescore_connections",
            "Open connections.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._loop_delay = Gauge(
            "forescore_event_loop_delay_seconds",
            "By how much each turn of the event loop is late at least, by its own work.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._work_limit = Gauge(
            "forescore_work_limit",
            "Requests that may be in work at once, because the event loop is late; 0 while that is not bounded.",
            registry=registry,
            multiprocess_mode="livemax",
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
        self._rejected_ratio = Gauge(
            "forescore_snapshot_rejected_ratio",
            "Rejected rows of the active snapshot, as a share of its input.",
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

        self._ready = Gauge(
            "forescore_ready",
            "1 once every worker has scored its golden rows, 0 while one loads or has failed.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._replaced = Counter(
            "forescore_workers_replaced_total", "Workers started in place of one that died.", registry=registry
        )
        self._hung = Counter(
            "forescore_workers_hung_total",
            "Those of them whose predecessor was killed, since its event loop stood still.",
            registry=registry,
        )

        self._begin()

    def _begin(self) -> None:
        """Begins each series that is known beforehand at 0: what appears with its first count is no increase."""
        known = {
            self._lookups: LOOKUPS,
            self._answers: RUNGS,
            self._write_backs: WRITE_BACKS,
            self._renewals: RENEWALS,
            self._shed_rows: SHED,
            self._refused: REFUSED,
        }
        for counter, values in known.items():
            for value in values:
                counter.labels(value)
        for rung, reason in RUNG_FAILURES:
            self._rung_failures.labels(rung, reason)

    def ready(self, *, is_ready: bool) -> None:
        """Whether this worker answers score calls."""
        self._ready.set(is_ready)

    def replaced(self, *, hung: bool = False) -> None:
        """This worker was started in place of one that died, or that ``hung`` and was killed."""
        self._replaced.inc()
        self._hung.inc(int(hung))

    def request(self, route: str, status: int, seconds: float, stages: StageTimer) -> None:
        """One answered request. ``route`` is the route's pattern, never the path with its id."""
        self._requests.labels(route, str(status)).inc()
        self._request_duration.labels(route).observe(seconds)
        for stage, spent in stages.seconds.items():
            self._stage_duration.labels(stage).observe(spent)

    def line_left_out(self) -> None:
        """One answered request that has no log line, because the settings say so."""
        self._lines_left_out.inc()

    def scored_tally(self) -> ScoredTally:
        """Counts together what was answered with scores that were computed for it."""
        return ScoredTally(
            requests=lambda route, status: self._requests.labels(route, str(status)),
            duration=self._request_duration.labels,
            stage=self._stage_duration.labels,
        )

    def tally(self, route: str) -> HitTally:
        """Counts a route's hits together."""
        return HitTally(
            requests=lambda status: self._requests.labels(route, str(status)),
            duration=self._request_duration.labels(route),
            lookup=self._stage_duration.labels("lookup"),
            age=self._served_age,
            hits=self._lookups.labels("hit"),
            answers=self._answers.labels("store"),
        )

    def lookup(self, outcome: str, entities: int = 1) -> None:
        """Entities that were looked up: hit, file (its hits), stale, rejected, absent, lost, down."""
        self._lookups.labels(outcome).inc(entities)

    def answered(self, source: str, scores: int = 1) -> None:
        """Scores, by their source, or ``refused``."""
        self._answers.labels("store" if source == "cache" else source).inc(scores)

    def rung_failed(self, rung: str, reason: str, entities: int = 1) -> None:
        """Entities that the rung could not tell of: store (down, lost), file (missing, late, lost)."""
        self._rung_failures.labels(rung, reason).inc(entities)

    def stage(self, stage: str, seconds: float) -> None:
        """One stage that is part of another."""
        self._stage_duration.labels(stage).observe(seconds)

    def snapshot_file(self, *, is_open: bool) -> None:
        """Whether there is something to stand in for the store."""
        self._file_open.set(is_open)

    def store(self, *, is_there: bool) -> None:
        """Whether the service has a store at all."""
        self._store_there.set(is_there)

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

    def refused(self, reason: str) -> None:
        """One request or connection that was not looked at."""
        self._refused.labels(reason).inc()

    def pressure(self, delay: float, limit: int | None, refused: int) -> None:
        """The event loop's delay in seconds, the bound on requests in work, and those that were over it."""
        self._loop_delay.set(delay)
        self._work_limit.set(limit or 0)
        self._refused.labels("delay").inc(refused)

    def key_rows(self, key: str, rows: int) -> None:
        """Rows that were let in with a key of that name."""
        self._key_rows.labels(key).inc(rows)

    def rate_unknown(self) -> None:
        """One request whose rate nobody knows."""
        self._rates_unknown.inc()

    def keys_unread(self, *, unread: bool) -> None:
        """Whether the file of keys cannot be read."""
        self._keys_unread.set(unread)

    def connections(self, count: int) -> None:
        """Connections that are open."""
        self._connections.set(count)

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

    def rejected(self, ratio: float) -> None:
        """The share of rejected rows in what the active snapshot was scored from."""
        self._rejected_ratio.set(ratio)

    def active(self, *, model: str, model_version: str, snapshot: str, exact: bool) -> None:
        """Names the active snapshot in place of the one before, and whether online scores equal its scores."""
        self._active_snapshot.labels = (model, model_version, snapshot)
        self._parity_exact.set(exact)
