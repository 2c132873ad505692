"""Every call of the API: what to send, and what an answer means. ``attempts`` sends it, a driver does the I/O."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar

from shared.client.attempts import NOT_THIS_SERVICE, Ask, Attempts, Call, ClientPolicy, Reply, json_object
from shared.client.problems import ForescoreProblem, Problem, UnexpectedAnswer, unexpected
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


class Core:
    """The API of one service, for any driver. It keeps nothing between calls, so threads and tasks can share it."""

    def __init__(self, attempts: Attempts, policy: ClientPolicy) -> None:
        self._attempts = attempts
        self._policy = policy

    def score(self, entity_id: str | int, timeout: float | None) -> Call[Score]:
        """``GET /score/{entity_id}``, or for an id that no path can carry ``POST /score``."""
        text = _sendable_id(entity_id)
        segment = in_path(text)
        if segment is None:
            (result,) = yield from self._score_slab([entry(text)], timeout)
            if isinstance(result, Problem):
                raise result.error()
            return result
        reply = yield from self._get(f"/score/{segment}", timeout)
        return _parsed(reply, lambda body: _score_of(text, body))

    def score_many(
        self, items: Iterable[str | int | Item], timeout: float | None
    ) -> Iterator[Call[list[Score | Problem]]]:
        """One call for each slab of the items, in order; each has the timeout for itself."""
        if isinstance(items, str):
            raise TypeError("score_many takes a list of ids; for one id there is score")
        cut = slabs(items, most=self._policy.slab_items, most_bytes=self._policy.slab_bytes)
        return (self._score_slab(slab, timeout) for slab in cut)

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

    def _score_slab(self, slab: Sequence[Entry], timeout: float | None) -> Call[list[Score | Problem]]:
        """One result for each entry; what could not be sent has its problem in its place."""
        sent = [one for one in slab if one.problem is None]
        results = iter((yield from self._post(sent, timeout)) if sent else [])
        return [next(results) if one.problem is None else replace(one.problem, entity_id=one.entity_id) for one in slab]

    def _post(self, sent: Sequence[Entry], timeout: float | None) -> Call[list[Score | Problem]]:
        """``POST /score``. A service with smaller limits than expected is asked again, in halves."""
        try:
            reply = yield from self._attempts.make(Ask(method="POST", path="/score", body=items_json(sent)), timeout)
        except ForescoreProblem as error:
            if error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            if len(sent) == 1:
                return [replace(error.problem, entity_id=sent[0].entity_id)]
            middle = len(sent) // 2
            first = yield from self._post(sent[:middle], timeout)
            return first + (yield from self._post(sent[middle:], timeout))
        call_id = reply.headers.get("x-request-id")
        return _parsed(reply, lambda body: _results(body["results"], sent, call_id))


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
