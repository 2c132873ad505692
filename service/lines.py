"""Log lines of requests: which are written, and how: together, since to write each by itself costs a system call."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import orjson
import structlog

from service.lane_answers import Hit
from shared.metrics import Metrics
from shared.telemetry import Logger, PlainLines, only_simple, plain_lines, simple_text

ALL = "all"
ERRORS = "errors"
ERROR_STATUS = 400
FAILED_STATUS = 500
MOST_LINES = 128
"""So many are written at once, however short the time is that they were gathered in."""
_ID_BYTES = 8
_IDS = 512

_log: Logger = structlog.get_logger()


class _Kept(NamedTuple):
    """Hits whose lines are not rendered yet: many of one form take less time together. Each with the seconds in which
    it was answered; ``at``: epoch seconds."""

    hits: Sequence[tuple[Hit, float]]
    at: float


class Told(NamedTuple):
    """What is told of a request that was answered together with others. ``facts`` are bounded words, of its own line;
    ``stages`` where its time went."""

    call_id: str
    method: str
    route: str
    status: int
    facts: Mapping[str, str | int | None]
    stages: Mapping[str, float]


class _Scored(NamedTuple):
    """Such a line, not rendered yet."""

    told: Told
    seconds: float
    at: float


class _Alike(NamedTuple):
    """Such a line, of which only the id is its own."""

    call_id: str
    rest: str
    at: float


class RequestIds:
    """Random ids, of which many are drawn at a time."""

    def __init__(self) -> None:
        self._ids: list[str] = []

    def next(self) -> str:
        """16 hexadecimal digits."""
        if not self._ids:
            text = secrets.token_hex(_ID_BYTES * _IDS)
            self._ids = [text[place : place + 2 * _ID_BYTES] for place in range(0, len(text), 2 * _ID_BYTES)]
        return self._ids.pop()


class RequestLines:
    """``keep``: FORESCORE_LOG_REQUESTS. Lines are gathered for ``buffer_ms``, with the counts of hits of ``route``, and
    written in one go; those of failures are written at once, with all before them.

    A line is what a logger would have made of it. Where lines are not JSON, a logger makes it, at once.
    """

    def __init__(self, metrics: Metrics, *, route: str = "", keep: str = ALL, buffer_ms: int = 0) -> None:
        self.route = route
        self._metrics = metrics
        self._one_of = 0 if keep == ERRORS else 1 if keep == ALL else int(keep.partition(":")[2])
        self._turn = 0
        self._seconds = buffer_ms / 1000
        self._tally = metrics.tally(route)
        self._plain: PlainLines | None = None
        self._scored = metrics.scored_tally()
        self._lines: list[str | _Kept | _Scored | _Alike] = []
        self._rests: dict[tuple[str, str], str] = {}
        self._held = 0
        self._timer: asyncio.TimerHandle | None = None
        self._words: dict[str, str] = {}

    def wanted(self, status: int) -> bool:
        """Whether a request that was answered so has a line; counts those that have none."""
        if self._one_of == 1 or status >= ERROR_STATUS:
            return True
        self._turn = (self._turn + 1) % self._one_of if self._one_of else 1
        if self._turn == 0:
            return True
        self._metrics.line_left_out()
        return False

    def hits(self, hits: Sequence[tuple[Hit, float]]) -> None:
        """Hits that were sent together, each with the seconds in which it was answered."""
        if self._timer is None:
            self._begin()
        self._tally.add(hits)
        told = hits if self._one_of == 1 else [one for one in hits if self.wanted(one[0].status)]
        if self._plain is None:
            for hit, seconds in told:
                self._log(hit, seconds)
        elif told:
            self._lines.append(_Kept(told, self._plain.now()))
            self._held += len(told)
        if not self._seconds or self._held >= MOST_LINES:
            self.flush()

    def scored(self, told: Told, seconds: float) -> None:
        """One request with a score that was computed for it, answered in so many seconds."""
        if self._timer is None:
            self._begin()
        self._scored.add(told.route, told.status, seconds, told.stages)
        if self._one_of == 1 or self.wanted(told.status):
            if self._plain is None:
                _log.info("request", **_facts(told, seconds))
            else:
                self._keep(_Scored(told, seconds, self._plain.now()))
        if not self._seconds or self._held >= MOST_LINES or told.status >= FAILED_STATUS:
            self.flush()

    def refused(self, told: Told) -> None:
        """One of the many that are refused together: its line waits, and is made of what it has in common with them."""
        if self._timer is None:
            self._begin()
        self._scored.add(told.route, told.status, 0.0, told.stages)
        if self._plain is None:
            _log.info("request", id=told.call_id, **_common(told))
        else:
            self._keep(_Alike(told.call_id, self._rest(told), self._plain.now()))
        if not self._seconds or self._held >= MOST_LINES:
            self.flush()

    def _rest(self, told: Told) -> str:
        """What follows the id in the line of each that is refused so."""
        key = (told.method, told.route)
        found = self._rests.get(key)
        if found is None:
            found = self._rests[key] = orjson.dumps(only_simple(None, "", _common(told))).decode()[1:-1]
        return found

    def tell(self, status: int, facts: Mapping[str, str | int | float | None]) -> None:
        """Any other answered request, whose line is wanted."""
        if self._timer is None:
            self._begin()
        if self._plain is None:
            _log.info("request", **facts)
        else:
            told = orjson.dumps(only_simple(None, "", dict(facts))).decode()[1:-1]
            self._keep(
                f'{{"time":"{self._plain.stamp(self._plain.now())}",{told},"event":"request"{self._plain.bound},"level":"info"}}'
            )
        if not self._seconds or self._held >= MOST_LINES or status >= FAILED_STATUS:
            self.flush()

    def flush(self) -> None:
        """Writes and counts what was gathered."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._tally.flush()
        self._scored.flush()
        if self._lines and self._plain is not None:
            lines, self._lines, self._held = self._lines, [], 0
            told = self._rendering(self._plain)
            self._plain.write("\n".join([line if isinstance(line, str) else told(line) for line in lines]))

    def _keep(self, line: str | _Scored | _Alike) -> None:
        self._lines.append(line)
        self._held += 1

    def _begin(self) -> None:
        self._plain = plain_lines()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self.flush)

    def _rendering(self, plain: PlainLines) -> Callable[[_Kept | _Scored | _Alike], str]:
        route, bound, stamp = self.route, plain.bound, plain.stamp

        def rendered(kept: _Kept | _Scored | _Alike) -> str:
            if isinstance(kept, _Alike):
                start = f'{{"time":"{stamp(kept.at)}","id":"{kept.call_id}",'
                return f'{start}{kept.rest},"event":"request"{bound},"level":"info"}}'
            if isinstance(kept, _Scored):
                return scored(kept)
            start = f'{{"time":"{stamp(kept.at)}","id":"'
            way = f'","method":"GET","route":"{route}","status":'
            end = f',"event":"request"{bound},"level":"info"}}'
            return "\n".join(
                [
                    f'{start}{hit.call_id}{way}{hit.status},"duration_ms":{round(seconds * 1000, 3)!r},'
                    f'{"" if hit.key is None else told_key(hit.key)}"entity_id":{hit.entity.decode()},'
                    f'"source":"cache","snapshot":{self._json(hit.snapshot)}{end}'
                    for hit, seconds in kept.hits
                ]
            )

        def scored(kept: _Scored) -> str:
            told = kept.told
            words = orjson.dumps(only_simple(None, "", dict(told.facts))).decode()[1:-1]
            start = (
                f'{{"time":"{stamp(kept.at)}","id":"{told.call_id}","method":"{told.method}","route":"{told.route}",'
            )
            status = f'"status":{told.status},"duration_ms":{round(kept.seconds * 1000, 3)!r}'
            return f'{start}{status}{"," if words else ""}{words},"event":"request"{bound},"level":"info"}}'

        def told_key(key: str) -> str:
            return f'"key":"{key}",'

        return rendered

    def _log(self, hit: Hit, seconds: float) -> None:
        _log.info(
            "request",
            id=hit.call_id,
            method="GET",
            route=self.route,
            status=hit.status,
            duration_ms=round(seconds * 1000, 3),
            **key_fact(hit.key),
            entity_id=orjson.loads(hit.entity),
            source="cache",
            snapshot=hit.snapshot,
        )

    def _json(self, text: str) -> str:
        """Of the one snapshot, or of the two around a promotion."""
        found = self._words.get(text)
        if found is None:
            self._words = {text: (found := orjson.dumps(simple_text(text)).decode())}
        return found


def _facts(told: Told, seconds: float) -> dict[str, str | int | float | None]:
    """What the line of a request says that was answered in so many seconds."""
    return {
        "id": told.call_id,
        "method": told.method,
        "route": told.route,
        "status": told.status,
        "duration_ms": round(seconds * 1000, 3),
        **told.facts,
    }


def _common(told: Told) -> dict[str, str | int | float | None]:
    return {"method": told.method, "route": told.route, "status": told.status, "duration_ms": 0.0, **told.facts}


def key_fact(key: str | None) -> dict[str, str | int | None]:
    """What a line tells of whose request it is: the name of the key, where keys are asked for."""
    return {} if key is None else {"key": key}
