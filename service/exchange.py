"""One exchange of ``/score``: what is asked, and the bytes of its answer.

Errors about the whole are raised as RequestError, for whoever serves to tell as a problem.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import orjson
from starlette.requests import Request

from service.access import Call, call_of
from service.answers import Answer
from service.body import parse_json, read_body
from service.entity import entity_of
from service.freshness import Wish
from service.headers import NO_STORE, entity_tag, headers_of, is_known
from service.items import Ask, Refused, parse_items
from service.online import Result, Terms
from service.patience import deadline_of
from service.problems import describe
from service.resident import Choice, by_id, by_version, read_resident
from service.runtime import Service
from shared.errors import BadRequest, RequestError

ONE = "/score/{entity_id}"
MANY = "/score"
"""The routes, as log lines and metrics name them."""
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes over the wire. ``media_type`` is None where there is no body."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    media_type: str | None = None


async def one(service: Service, request: Request) -> Reply:
    """``GET /score/{entity_id}``, within the deadline."""
    call = call_of(request)
    call.facts["entity_id"] = entity_id = entity_of(request.scope, "/score/")
    live = service.live()
    choice = _choice(request.query_params)
    if_none_match = request.headers.get("if-none-match")
    async with deadline_of(request, service.settings.service.deadline_ms, _spent(service, call)) as until:
        if choice is None:
            terms = Terms(wish=_wish(request), until=until, seen=call.seen)
            return await score_one(service, call, entity_id, terms, if_none_match)
        return tell(service, call, await read_resident(live, choice, entity_id, call.stages), if_none_match)


async def many(service: Service, request: Request) -> Reply:
    """``POST /score``, within the deadline."""
    service.live()  # before the body is read
    call = call_of(request)
    limits = service.settings.service
    body = await read_body(request, limits.max_body_bytes, limits.receive_seconds)
    async with deadline_of(request, limits.deadline_ms) as until:
        return await score_many(service, call, body, Terms(wish=_wish(request), until=until))


def _spent(service: Service, call: Call) -> float:
    """How long ago the request came in: it may have been looked at before it was left to its route."""
    return service.dependencies.monotonic.now() - call.start


def _choice(options: Mapping[str, str]) -> Choice | None:
    """The snapshot that the query names; None: the active one, with all that is done for what it lacks."""
    snapshot, model_version = options.get("snapshot"), options.get("model_version")
    if snapshot is not None and model_version is not None:
        raise BadRequest("name a snapshot or a model_version, not both: a snapshot has one version")
    if snapshot is not None:
        return by_id(snapshot)
    return None if model_version is None else by_version(model_version)


def _wish(request: Request) -> Wish:
    return Wish.parse(", ".join(request.headers.getlist("cache-control")))


async def score_one(
    service: Service, call: Call, entity_id: str, terms: Terms, if_none_match: str | None = None
) -> Reply:
    """The score of an entity, from the active snapshot or computed now; by ``terms.until`` if the caller sees to it."""
    replies = await service.live().desk.answer([Ask(entity_id=entity_id)], call.stages, terms)
    result = replies.results[0]
    if isinstance(result, RequestError):
        raise result
    return tell(service, call, result, if_none_match)


async def score_many(service: Service, call: Call, body: bytes, terms: Terms) -> Reply:
    """One result for each item of the body, in order."""
    live = service.live()
    items = parse_items(parse_json(body), limit=service.settings.service.max_items, features=live.features)
    if call.passed is not None:
        await call.passed.hold(len(items))
    asks = [item for item in items if isinstance(item, Ask)]
    replies = await live.desk.answer(asks, call.stages, terms)
    snapshot = replies.active.meta.snapshot if replies.active is not None else None
    call.facts |= {"items": len(items), "snapshot": snapshot}
    results = list(_bodies(items, replies.results, service.dependencies.wall.now()))
    return _json({"snapshot": snapshot, "results": results}, NO_STORE)


def tell(service: Service, call: Call, answer: Answer, if_none_match: str | None) -> Reply:
    """The answer, or 304 for a caller who has it already."""
    call.facts |= {"source": answer.source, "snapshot": answer.snapshot}
    now = service.dependencies.wall.now()
    body = answer.body(now)
    tag = entity_tag(body)
    headers = headers_of(answer.cache, tag, answer.age(now) if answer.source != "online" else None)
    if is_known(tag, if_none_match):
        return Reply(HTTPStatus.NOT_MODIFIED, headers)
    return _json(body, headers)


def _bodies(items: Sequence[Ask | Refused], results: Sequence[Result], now: float) -> Iterator[dict[str, object]]:
    """The results of the questions, and in their places the errors of the items that were none."""
    answered = iter(results)
    for item in items:
        result = item.error if isinstance(item, Refused) else next(answered)
        if isinstance(result, RequestError):
            yield {"entity_id": item.entity_id, "error": describe(result)}
        else:
            yield result.body(now)


def _json(body: object, headers: Mapping[str, str]) -> Reply:
    return Reply(HTTPStatus.OK, headers, orjson.dumps(body), JSON)
