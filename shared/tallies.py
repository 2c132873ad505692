"""Counts of many requests, brought to the metrics together: a lock for each would take longer than the answer."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from prometheus_client import Counter, Histogram


class Counted(Protocol):
    """What is counted of a hit: the seconds that its look-up took, and the age of its score."""

    @property
    def status(self) -> int: ...

    @property
    def lookup(self) -> float: ...

    @property
    def age(self) -> float: ...


class HitTally:
    """Hits, kept until ``flush`` counts them."""

    def __init__(
        self,
        *,
        requests: Callable[[int], Counter],
        duration: Histogram,
        lookup: Histogram,
        age: Histogram,
        hits: Counter,
        answers: Counter,
    ) -> None:
        self._requests = requests
        self._duration = duration
        self._lookup = lookup
        self._age = age
        self._hits = hits
        self._answers = answers
        self._kept: list[tuple[Counted, float]] = []

    def add(self, hits: Sequence[tuple[Counted, float]]) -> None:
        """Hits, each with the seconds in which it was answered."""
        self._kept += hits

    def flush(self) -> None:
        """Counts them."""
        kept, self._kept = self._kept, []
        statuses = [hit.status for hit, _ in kept]
        for status in set(statuses):
            self._requests(status).inc(statuses.count(status))
        self._hits.inc(len(kept))
        self._answers.inc(len(kept))
        _observe(self._duration, [seconds for _, seconds in kept])
        _observe(self._lookup, [hit.lookup for hit, _ in kept])
        _observe(self._age, [max(0.0, hit.age) for hit, _ in kept])


class ScoredTally:
    """Requests that were answered together, kept until ``flush`` counts them, for the same reason."""

    def __init__(
        self,
        *,
        requests: Callable[[str, int], Counter],
        duration: Callable[[str], Histogram],
        stage: Callable[[str], Histogram],
    ) -> None:
        self._requests = requests
        self._duration = duration
        self._stage = stage
        self._statuses: dict[tuple[str, int], int] = {}
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._stages: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, route: str, status: int, seconds: float, stages: Mapping[str, float]) -> None:
        """One request, answered in so many seconds, of which its ``stages`` took theirs."""
        key = (route, status)
        self._statuses[key] = self._statuses.get(key, 0) + 1
        self._seconds[route].append(seconds)
        for name, spent in stages.items():
            self._stages[name].append(spent)

    def flush(self) -> None:
        """Counts them."""
        for (route, status), count in self._statuses.items():
            self._requests(route, status).inc(count)
        for route, seconds in self._seconds.items():
            _observe(self._duration(route), seconds)
        for name, spent in self._stages.items():
            _observe(self._stage(name), spent)
        for kept in (self._statuses, self._seconds, self._stages):
            kept.clear()


def _observe(histogram: Histogram, values: list[float]) -> None:
    """``observe`` for each value, with one lock for each bucket instead of two for each value."""
    places = [bisect_left(histogram._upper_bounds, value) for value in values]  # noqa: SLF001 - it has no other way in
    for place in set(places):
        histogram._buckets[place].inc(places.count(place))  # noqa: SLF001 - the same
    histogram._sum.inc(sum(values))  # noqa: SLF001 - the same
