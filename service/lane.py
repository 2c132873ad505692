"""The fast lane: questions about scores, answered before the framework sees them.

Plain hits of ``GET /score/{entity_id}`` are answered here. Whatever is no plain hit goes on, with what was looked up
for it, to ``service.direct``; so there is one place that knows misses, outages and refusals, and it is not here. The
answers are the framework's to the byte; a contract suite holds them so.
"""

import asyncio
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import orjson
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from service.access import CLIENT_GONE, Call
from service.body import parse_json
from service.entity import entity_of
from service.exchange import MANY as MANY_ROUTE
from service.exchange import ONE
from service.freshness import ANY, Wish
from service.headers import REVALIDATE, CacheStatus, is_known
from service.items import parse_single
from service.landing import Landing, Moment
from service.lane_answers import SCORED_AT, Hit, Print
from service.lines import RequestIds, Told, key_fact
from service.lookup import Seen
from service.online_answers import Missed, Posted
from service.passes import Pass
from service.patience import RAW as TIMEOUT
from service.patience import waits_for
from service.refresh import AgeLimit
from service.runtime import Live, Service
from service.together import Together
from service.tracing import is_traced
from shared.errors import InvalidEntityId, RequestError, StoreError
from shared.layout import unpack
from shared.settings import Settings
from shared.snapshot import Absent, Active, Lookup, Lost, SnapshotMeta
from shared.telemetry import Logger, StageTimer

PREFIX = b"/score/"
MANY = b"/score"
_PLAIN = re.compile(rb"/score/([!#-$&-\[\]-~]{1,256})")
"""Ids that are the same in a path, in UTF-8 and in JSON."""
_LIST_TERMS = frozenset({b"cache-control", b"content-encoding", TIMEOUT})
"""Headers with which a list is not plain."""
Headers = Sequence[tuple[bytes, bytes]]

_OK, _NOT_MODIFIED = 200, 304
_CACHE_CONTROL = (b"cache-control", REVALIDATE.encode())
_CACHE_STATUS = (b"cache-status", str(CacheStatus()).encode())
_JSON = (b"content-type", b"application/json")
_START = b"".join([b"%b: %b\r\n" % header for header in (_CACHE_CONTROL, _CACHE_STATUS)]) + b"etag: %b\r\nage: %b\r\n"
_END = b"x-request-id: %b\r\nserver-timing: %b\r\n"
_HEAD = _START + b"content-length: %d\r\n" + b"%b: %b\r\n" % _JSON + _END
_HEAD_NOT_MODIFIED = _START + _END


_log: Logger = structlog.get_logger()


class Asked(NamedTuple):
    """The entity that is asked for, as UTF-8 and as JSON."""

    id: bytes
    json: bytes


class Question(NamedTuple):
    """A question, and the snapshot that it is asked of. ``start``: by the monotonic clock; ``terms``: those of its
    headers."""

    asked: Asked
    live: Live
    active: Active
    start: float
    terms: "Conditions"


class Conditions(NamedTuple):
    """How fresh an answer must be, the tag of what the caller has, and how long he waits, as he says it."""

    wish: Wish = ANY
    known: str | None = None
    timeout: str | None = None


NO_CONDITIONS = Conditions()


class FastLane:
    """``direct`` answers other questions about scores, and ``app`` what is left."""

    def __init__(self, app: ASGIApp, direct: ASGIApp, service: Service) -> None:
        self._app = app
        self._direct = direct
        self._service = service
        self._limit = AgeLimit.of(service.settings.service)
        self._is_open: bool | None = None
        self._lookup_ms = lookup_ms(service.settings)
        self._wall = service.dependencies.wall
        self._clock = service.dependencies.monotonic
        self._ids = RequestIds()
        self._print: Print | None = None
        self.landing = Landing(self.moment, self.sent)
        self._sent: list[tuple[Hit, float]] = []
        self.together = Together(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "call" in scope.get("state", ()):  # it was looked up before it came here
            await self._direct(scope, receive, send)
            return
        question = self.question(scope)
        if question is None:
            await self._leave(scope, receive, send)
            return
        try:
            found = await question.live.store.reader.peek(question.active.meta, question.asked.id)
        except StoreError as error:
            self.hand_over(scope, question, Seen(question.active, error))
        except asyncio.CancelledError:
            self.gone(question, key_of(scope))
            raise
        except Exception:  # noqa: BLE001 - nobody foresaw it: the next one meets it too, and says so
            self.hand_over(scope, question)
        else:
            hit = self.hit(question, found, self.moment(), key_of(scope))
            if hit is not None:
                await self._send(send, question, hit)
                return
            self.hand_over(scope, question, seen_in(question, found))
        await self._direct(scope, receive, send)

    def question(self, scope: Scope) -> Question | None:
        """What is asked, if it is a plain question and there is a snapshot to look into."""
        live = self._service.phase
        asked = _asked(scope)
        if asked is None or not isinstance(live, Live) or live.pointer.active is None or not self._open():
            return None
        terms = _conditions(scope["headers"])
        if terms.timeout is not None and not waits_for(terms.timeout, self._lookup_ms):
            return None
        return Question(asked, live, live.pointer.active, self._clock.now(), terms)

    def is_posting(self, scope: Scope) -> bool:
        """Whether it is a list, in its plain spelling and on no terms, and there is something to answer it with."""
        if scope["method"] != "POST" or scope["raw_path"] != MANY or scope["query_string"] or scope.get("root_path"):
            return False
        if not isinstance(self._service.phase, Live) or not self._open():
            return False
        return all(name not in _LIST_TERMS for name, _ in scope["headers"])

    def posted(self, body: bytes, start: float, key: str | None = None) -> Posted | None:
        """The one row of features that a body has; None where it is anything else."""
        live, settings = self._service.phase, self._service.settings.service
        if not isinstance(live, Live) or len(body) > settings.max_body_bytes or not settings.max_items:
            return None
        try:
            ask = parse_single(parse_json(body), live.features)
        except RequestError:
            return None
        return None if ask is None else Posted(ask, start, key)

    def missed(self, question: Question, key: str | None = None) -> Missed | None:
        """What is to be scored of an entity that the snapshot does not have; None where it is asked for on terms."""
        wish, known, timeout = question.terms
        if wish is not ANY or timeout is not None:
            return None
        entity, lookup = question.asked.id.decode(), self._clock.now() - question.start
        return Missed(entity, question.asked.json, question.start, lookup, known, key)

    def now(self) -> float:
        """By the clock of ``Question.start``."""
        return self._clock.now()

    def told(self, told: Told, start: float) -> None:
        """The line and the counts of an answer that was sent."""
        self._service.lines.scored(told, self._clock.now() - start)

    def _open(self) -> bool:
        """Asked once requests come: before, it is not known whether they are traced."""
        if self._is_open is None:
            is_traced_by_framework = is_traced(self._service.dependencies.telemetry)
            self._is_open = _is_bounded(self._service.settings) and not is_traced_by_framework
        return self._is_open

    def moment(self) -> Moment:
        """By both clocks."""
        return Moment(self._clock.now(), self._wall.now())

    def hit(
        self, question: Question, found: bytes | Absent | Lost, moment: Moment, key: str | None = None
    ) -> Hit | None:
        """The answer; None where it is no score, or not as fresh as it has to be, or due to be renewed."""
        if not isinstance(found, bytes):
            return None
        asked, live, active, start, (wish, known, _) = question
        meta = active.meta
        press = self._print
        if press is None or press.meta is not meta:
            press = self._print = self._printing(meta, live)
        fields = press.read(found)
        if fields is None:
            return None
        age = moment.wall - fields[SCORED_AT]
        whole = max(0, int(age))
        if (wish is not ANY and not wish.takes(whole)) or (
            self._limit is not None and _is_old(self._limit, asked, age)
        ):
            return None
        seconds = b"%d" % whole
        body, tag = press.answer(asked.json, fields, seconds)
        status = _OK
        if known is not None and is_known(tag.decode(), known):
            status, body = _NOT_MODIFIED, b""
        lookup = moment.monotonic - start
        return Hit(status, tag, seconds, body, self._ids.next(), lookup, asked.json, meta.snapshot, age, key)

    def _printing(self, meta: SnapshotMeta, live: Live) -> Print:
        """The one at hand for the same snapshot, whose metadata is a new object each time that the pointer is read."""
        press = self._print
        if press is None or press.meta != meta:
            return Print(meta, live.scorer.golden_digest)
        press.meta = meta
        return press

    def tell(self, question: Question, hit: Hit) -> None:
        """A hit was sent: it has its line and its counts once all are ``sent`` that were made with it."""
        self._sent.append((hit, question.start))

    def sent(self) -> None:
        """Tells of what was sent."""
        if self._sent:
            sent, self._sent = self._sent, []
            now = self._clock.now()
            self._service.lines.hits([(hit, now - start) for hit, start in sent])

    async def _send(self, send: Send, question: Question, hit: Hit) -> None:
        try:
            await send({"type": "http.response.start", "status": hit.status, "headers": _headers(hit)})
            await send({"type": "http.response.body", "body": hit.body})
        finally:
            self.tell(question, hit)
            self.sent()

    def hand_over(self, scope: Scope, question: Question, seen: Seen | None = None) -> None:
        """Lets the application go on where the lane ends: the same request, and no second look-up."""
        self.hand_over_since(scope, question.start, seen)
        scope["state"]["call"].stages.add("lookup", self._clock.now() - question.start)

    def hand_over_since(self, scope: Scope, start: float, seen: Seen | None = None) -> None:
        """The same for a request that came in at ``start``."""
        call = Call(id=self._ids.next(), start=start, stages=StageTimer(self._clock), seen=seen)
        scope.setdefault("state", {})["call"] = call

    async def _leave(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_direct = scope["type"] == "http" and self._open() and _is_direct(scope)
        await (self._direct if is_direct else self._app)(scope, receive, send)

    def gone(self, question: Question, key: str | None = None) -> None:
        """Nobody waits for it any more; it has its line all the same."""
        facts = {**key_fact(key), "entity_id": orjson.loads(question.asked.json)}
        self.told(Told(self._ids.next(), "GET", ONE, CLIENT_GONE, facts, {}), question.start)

    def posting_gone(self, start: float, key: str | None = None) -> None:
        """The same of a list."""
        self.told(Told(self._ids.next(), "POST", MANY_ROUTE, CLIENT_GONE, key_fact(key), {}), start)


def key_of(scope: Scope) -> str | None:
    """The name of the caller's key."""
    passed: Pass | None = scope.get("state", {}).get("pass")
    return None if passed is None else passed.key


def _is_direct(scope: Scope) -> bool:
    """Whether it is a question about scores, in its plain spelling."""
    if scope.get("root_path"):
        return False
    if scope["method"] == "POST":
        return bool(scope["raw_path"] == MANY)
    return bool(scope["method"] == "GET" and scope["raw_path"].startswith(PREFIX))


def _asked(scope: Scope) -> Asked | None:
    """None where it is another question, or no id."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["query_string"] or scope.get("root_path"):
        return None
    raw = scope["raw_path"]
    plain = _PLAIN.fullmatch(raw)
    if plain is not None:
        entity = plain[1]
        return Asked(entity, b'"%b"' % entity)
    if not raw.startswith(PREFIX):
        return None
    try:
        text = entity_of(scope, "/score/")
    except InvalidEntityId:
        return None
    return Asked(text.encode(), orjson.dumps(text))


def _conditions(headers: Headers) -> Conditions:
    known, timeout = None, None
    controls: list[bytes] = []
    for name, value in headers:
        if name == b"cache-control":
            controls.append(value)
        elif name == b"if-none-match" and known is None:
            known = value.decode("latin-1")
        elif name == TIMEOUT and timeout is None:
            timeout = value.decode("latin-1")
    if not controls and known is None and timeout is None:
        return NO_CONDITIONS
    return Conditions(_wish(b", ".join(controls)) if controls else ANY, known, timeout)


@lru_cache(maxsize=256)
def _wish(header: bytes) -> Wish:
    return Wish.parse(header.decode("latin-1"))


def _headers(hit: Hit) -> list[tuple[bytes, bytes]]:
    headers = [_CACHE_CONTROL, _CACHE_STATUS, (b"etag", hit.tag), (b"age", hit.seconds)]
    if hit.status == _OK:
        headers += [(b"content-length", b"%d" % len(hit.body)), _JSON]
    return [*headers, (b"x-request-id", hit.call_id.encode()), (b"server-timing", _timing(hit))]


def head_of(hit: Hit) -> bytes:
    """The same headers as they go over the wire."""
    told = (hit.tag, hit.seconds)
    if hit.status == _OK:
        return _HEAD % (*told, len(hit.body), hit.call_id.encode(), _timing(hit))
    return _HEAD_NOT_MODIFIED % (*told, hit.call_id.encode(), _timing(hit))


def _timing(hit: Hit) -> bytes:
    return b"lookup;dur=%.3f" % (hit.lookup * 1000)


def _is_old(limit: AgeLimit, asked: Asked, age: float) -> bool:
    """Whether the score is too old, or is to be renewed."""
    return limit.is_over(age) or limit.is_due(asked.id.decode(), age)


def seen_in(question: Question, found: bytes | Absent | Lost) -> Seen:
    """What was found, for whoever goes on with it."""
    return Seen(question.active, _looked_into(found, question.active.meta))


def _looked_into(found: bytes | Absent | Lost, meta: SnapshotMeta) -> Lookup:
    return unpack(found, len(meta.columns), meta.fields) if isinstance(found, bytes) else found


def _is_bounded(settings: Settings) -> bool:
    """Whether the store's own limits end a look-up before the request's deadline does."""
    return lookup_ms(settings) < settings.service.deadline_ms


def lookup_ms(settings: Settings) -> int:
    """How long the store's own limits let a look-up take."""
    return settings.redis.read_timeout_ms * (settings.redis.read_retries + 1)
