"""Every call of the API: what to send, and what an answer means. ``attempts`` sends it, a driver does the I/O."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode

from shared.client.attempts import NOT_THIS_SERVICE, Ask, Attempts, Call, ClientPolicy, Reply, json_object
from shared.client.freshness import CacheStatus, Wishes, age_of, cache_control
from shared.client.problems import ForescoreProblem, Problem, UnexpectedAnswer, invalid_id, unexpected
from shared.client.results import JsonObject, Model, Readiness, Score, Snapshots, parse_problem
from shared.client.wire import (
    Entry,
    Features,
    Item,
    Unsendable,
    entry,
    features_json,
    id_text,
    in_path,
    items_json,
    slabs,
)

T = TypeVar("T")


_OK = frozenset({HTTPStatus.OK, HTTPStatus.NOT_MODIFIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which score of the entity: of that snapshot, of the newest snapshot of that version, or the one that is served.

    ``known`` is a score that is at hand: if it still holds, it is not sent again.
    """

    snapshot: str | None = None
    model_version: str | None = None
    known: Score | None = None

    def __post_init__(self) -> None:
        if self.snapshot is not None and self.model_version is not None:
            raise TypeError("name a snapshot or a model_version, not both: a snapshot has one version")

    @property
    def query(self) -> str:
        named = {"snapshot": self.snapshot, "model_version": self.model_version}
        told = urlencode({name: value for name, value in named.items() if value is not None})
        return f"?{told}" if told else ""

    @property
    def condition(self) -> dict[str, str]:
        return {} if self.known is None or self.known.etag is None else {"if-none-match": self.known.etag}

    def revalidated(self, reply: Reply) -> Score | None:
        """The score at hand, as old as it is now, where the reply says that it still holds."""
        if reply.status != HTTPStatus.NOT_MODIFIED or self.known is None:
            return None
        age = age_of(reply.headers)
        return _with_headers(self.known if age is None else replace(self.known, age_seconds=age), reply)


class Core:
    """The API of one service, for any driver. It keeps nothing between calls, so threads and tasks can share it."""

    def __init__(self, attempts: Attempts, policy: ClientPolicy) -> None:
        self._attempts = attempts
        self._policy = policy

    def score(self, entity_id: str | int, timeout: float | None, choice: Choice, wishes: Wishes) -> Call[Score]:
        """``GET /score/{entity_id}``, or for an id that no path can carry ``POST /score``."""
        text = _sendable_id(entity_id)
        segment = in_path(text)
        headers = cache_control(wishes)
        if segment is None:
            if choice.query:
                raise invalid_id("this id is none in a path, and only there a snapshot or a version is named").error()
            (result,) = yield from self._score_slab([entry(text)], timeout, headers)
            if isinstance(result, Problem):
                raise result.error()
            return result
        ask = Ask(method="GET", path=f"/score/{segment}{choice.query}", headers=headers | choice.condition, answers=_OK)
        reply = yield from self._attempts.make(ask, timeout)
        return choice.revalidated(reply) or _parsed(reply, lambda body: _with_headers(_score_of(text, body), reply))

    def score_many(
        self, items: Iterable[str | int | Item], timeout: float | None, wishes: Wishes
    ) -> Iterator[Call[list[Score | Problem]]]:
        """One call for each slab of the items, in order; each has the timeout for itself."""
        if isinstance(items, str):
            raise TypeError("score_many takes a list of ids; for one id there is score")
        headers = cache_control(wishes)
        cut = slabs(items, most=self._policy.slab_items, most_bytes=self._policy.slab_bytes)
        return (self._score_slab(slab, timeout, headers) for slab in cut)

    def put_features(self, entity_id: str | int, features: Features, timeout: float | None) -> Call[None]:
        """``PUT /features/{entity_id}``."""
        text = _sendable_id(entity_id)
        segment = in_path(text) or text.replace(".", "%2E")  # there is no other way, and most servers leave this alone
        try:
            body = b'{"features":' + features_json(features) + b"}"
        except Unsendable as error:
            raise replace(error.problem, entity_id=text).error() from None
        kept = frozenset({HTTPStatus.NO_CONTENT})
        yield from self._attempts.make(Ask(method="PUT", path=f"/features/{segment}", body=body, answers=kept), timeout)

    def model(self, timeout: float | None) -> Call[Model]:
        """``GET /model``."""
        return _parsed((yield from self._get("/model", timeout)), Model.parse)

    def snapshots(self, timeout: float | None) -> Call[Snapshots]:
        """``GET /snapshots``."""
        return _parsed((yield from self._get("/snapshots", timeout)), Snapshots.parse)

    def ready(self, timeout: float | None) -> Call[Readiness]:
        """``GET /readyz``, once: it is about now."""
        answers = frozenset({HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE})
        reply = yield from self._attempts.make(Ask(method="GET", path="/readyz", answers=answers), timeout, attempts=1)
        try:
            return _parsed(reply, Readiness.parse)
        except UnexpectedAnswer:
            if reply.status == HTTPStatus.OK:
                raise
            raise self._attempts.told(reply).error() from None  # a proxy says that there is no service behind it

    def _get(self, path: str, timeout: float | None) -> Call[Reply]:
        return self._attempts.make(Ask(method="GET", path=path), timeout)

    def _score_slab(
        self, slab: Sequence[Entry], timeout: float | None, headers: Mapping[str, str]
    ) -> Call[list[Score | Problem]]:
        """One result for each entry; what could not be sent has its problem in its place."""
        sent = [one for one in slab if one.problem is None]
        results = iter((yield from self._post(sent, timeout, headers)) if sent else [])
        return [next(results) if one.problem is None else replace(one.problem, entity_id=one.entity_id) for one in slab]

    def _post(
        self, sent: Sequence[Entry], timeout: float | None, headers: Mapping[str, str]
    ) -> Call[list[Score | Problem]]:
        """``POST /score``. A service with smaller limits than expected is asked again, in halves."""
        try:
            ask = Ask(method="POST", path="/score", body=items_json(sent), headers=headers)
            reply = yield from self._attempts.make(ask, timeout)
        except ForescoreProblem as error:
            if error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            if len(sent) == 1:
                return [replace(error.problem, entity_id=sent[0].entity_id)]
            middle = len(sent) // 2
            first = yield from self._post(sent[:middle], timeout, headers)
            return first + (yield from self._post(sent[middle:], timeout, headers))
        call_id = reply.headers.get("x-request-id")
        return _parsed(reply, lambda body: _results(body["results"], sent, call_id))


def _with_headers(score: Score, reply: Reply) -> Score:
    status = CacheStatus.parse(reply.headers.get("cache-status"))
    return replace(score, cache_status=status, etag=reply.headers.get("etag"))


def _sendable_id(entity_id: str | int) -> str:
    try:
        return id_text(entity_id)
    except Unsendable as error:
        raise error.problem.error() from None


def _parsed(reply: Reply, parse: Callable[[JsonObject], T]) -> T:
    try:
        return parse(json_object(reply))
    except NOT_THIS_SERVICE as error:
        what = f"the answer has another form than this client knows ({type(error).__name__})"
        raise unexpected(reply.status, what).error() from None


def _results(results: Sequence[Any], sent: Sequence[Entry], call_id: str | None) -> list[Score | Problem]:
    """One for each entry that was sent; ValueError where they do not match."""
    return [_result(body, asked.entity_id, call_id) for body, asked in zip(results, sent, strict=True)]


def _result(body: JsonObject, entity_id: str | None, call_id: str | None) -> Score | Problem:
    if "error" not in body:
        return _score_of(entity_id, body)
    error = body["error"]
    return replace(parse_problem(error, status=error["status"], error_id=call_id), entity_id=entity_id)


def _score_of(entity_id: str | None, body: JsonObject) -> Score:
    """The score, once it is sure that it is about what was asked."""
    score = Score.parse(body)
    if score.entity_id != entity_id:
        raise ValueError("another entity's score")
    return score
