"""The bytes of answers that are scored online for several requests together, and what is told of each.

They are what ``service.exchange`` would answer to each alone, header by header; a contract suite holds them so.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

import orjson

from service.answers import Answer, Parity
from service.exchange import JSON, MANY, ONE
from service.headers import NO_STORE, REVALIDATE, CacheStatus, is_known
from service.items import Ask
from service.lane_answers import Press, online_fields, online_press
from service.lines import RequestIds, Told, key_fact
from service.online import Result
from service.problems import describe, retold
from service.runtime import Live, Service
from shared.errors import RequestError

Stages = Mapping[str, float]
Headers = Sequence[tuple[bytes, bytes]]

_OK, _NOT_MODIFIED = HTTPStatus.OK.value, HTTPStatus.NOT_MODIFIED.value
_CONTENT = b"content-length: %%d\r\ncontent-type: %b\r\n" % JSON.encode()
_CALL = b"x-request-id: %b\r\nserver-timing: %b\r\n"
_TAGGED = b"cache-control: %b\r\ncache-status: %%b\r\netag: %%b\r\n" % REVALIDATE.encode()
_HEAD_ONE = _TAGGED + _CONTENT + _CALL
_HEAD_NOT_MODIFIED = _TAGGED + _CALL
_HEAD_MANY = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in NO_STORE.items()) + (
    _CONTENT + _CALL
)


class Missed(NamedTuple):
    """An entity that the active snapshot lacks, also as JSON. ``start``: by the monotonic clock; ``lookup``: how
    long it took to find out; ``known``: the request's ``If-None-Match``; ``key``: the name of the caller's."""

    entity: str
    json: bytes
    start: float
    lookup: float
    known: str | None
    key: str | None = None


class Posted(NamedTuple):
    """A row of features, and the name of the caller's key."""

    ask: Ask
    start: float
    key: str | None = None


class Sent(NamedTuple):
    """An answer: its header lines, but for those of the server, its body, and what is told of it."""

    head: bytes
    body: bytes
    told: Told


class OnlineAnswers:
    """Writes them for one service."""

    def __init__(self, service: Service) -> None:
        self._retry_after = service.settings.service.retry_after_seconds
        self._wall = service.dependencies.wall
        self._ids = RequestIds()
        self._presses: dict[tuple[str, Parity | None], Press] = {}

    def one(self, live: Live, asked: Missed, result: Result, shared: Stages) -> Sent:
        """To ``GET /score/{entity_id}``."""
        stages = {"lookup": asked.lookup, **shared}
        facts = {**key_fact(asked.key), "entity_id": asked.entity}
        if not isinstance(result, Answer):
            return self.problem(result, "GET", ONE, facts, stages)
        facts |= {"source": result.source, "snapshot": result.snapshot}
        call_id = self._ids.next()
        age = b"%d" % result.age(self._wall.now())
        body, tag = self._press(live, result.parity).answer(asked.json, _fields(result), age)
        marks = (_told_status(result.cache), tag)
        status, call = _OK, (call_id.encode(), timing(stages))
        if asked.known is not None and is_known(tag.decode(), asked.known):
            status, body, head = _NOT_MODIFIED, b"", _HEAD_NOT_MODIFIED % (*marks, *call)
        else:
            head = _HEAD_ONE % (*marks, len(body), *call)
        return Sent(head, body, Told(call_id, "GET", ONE, status, facts, stages))

    def many(
        self, live: Live, asked: Posted, result: Result, snapshot: str | None, shared: Stages, times: bytes
    ) -> Sent:
        """To ``POST /score`` with one item. ``times``: the ``timing`` of the stages, which all share."""
        entity_id, call_id = asked.ask.entity_id, self._ids.next()
        if isinstance(result, Answer):
            name = b"null" if entity_id is None else orjson.dumps(entity_id)
            age = b"%d" % result.age(self._wall.now())
            item = self._press(live, result.parity).body(name, _fields(result), age)
        else:
            item = orjson.dumps({"entity_id": entity_id, "error": describe(result)})
        body = b'{"snapshot":%b,"results":[%b]}' % (orjson.dumps(snapshot), item)
        head = _HEAD_MANY % (len(body), call_id.encode(), times)
        facts = {**key_fact(asked.key), "items": 1, "snapshot": snapshot}
        return Sent(head, body, Told(call_id, "POST", MANY, _OK, facts, shared))

    def refused(self, asked: Posted, error: RequestError, shared: Stages) -> Sent:
        """The same, where the list is refused as a whole."""
        return self.problem(error, "POST", MANY, key_fact(asked.key), shared)

    def problem(
        self, error: RequestError, method: str, route: str, facts: dict[str, str | int | None], stages: Stages
    ) -> Sent:
        """To either, where it is refused as a whole."""
        call_id = self._ids.next()
        answer = retold(error, call_id, facts, self._retry_after)
        head = [*answer.raw_headers, (b"x-request-id", call_id.encode())]
        if stages:
            head.append((b"server-timing", timing(stages)))
        lines = b"".join([b"%b: %b\r\n" % line for line in head])
        return Sent(lines, bytes(answer.body), Told(call_id, method, route, answer.status_code, facts, stages))

    def _press(self, live: Live, parity: Parity | None) -> Press:
        bundle = live.scorer.bundle
        key = (bundle.digest, parity)
        found = self._presses.get(key)
        if found is None:
            found = self._presses[key] = online_press(bundle, parity)
        return found


def _fields(answer: Answer) -> tuple[object, ...]:
    return online_fields(answer.scores, answer.scored_at)


def timing(stages: Stages) -> bytes:
    """As ``StageTimer.server_timing``."""
    return ", ".join([f"{name};dur={seconds * 1000:.3f}" for name, seconds in stages.items()]).encode()


@lru_cache(maxsize=64)
def _told_status(status: CacheStatus) -> bytes:
    return str(status).encode()
