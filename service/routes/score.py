"""``GET /score/{entity_id}`` and ``POST /score``."""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.access import Call
from service.answers import Answer
from service.body import parse_json, read_body
from service.contract import Items, Results, Score, header, json_body, path_id, query, responses
from service.deadline import within
from service.entity import entity_of
from service.freshness import Wish
from service.headers import NO_STORE, entity_tag, headers_of, is_known
from service.items import Ask, Refused, parse_items
from service.online import Result, Terms
from service.problems import describe
from service.resident import Choice, by_id, by_version, read_resident
from service.runtime import Live, Service, call_of, service_of
from shared.errors import BadRequest, RequestError

router = APIRouter(tags=["scores"])

_ONE = path_id()
_SNAPSHOT = query("snapshot", "Read this snapshot, whether it is active, held or old. Nothing is scored online then.")
_VERSION = query(
    "model_version", "Read the newest ready snapshot of this version, active or not. Nothing is scored online then."
)
_CACHE_CONTROL = header(
    "Cache-Control",
    "`max-age=N` (with `max-stale=M`: N + M): an older score is scored anew if the features can be had, and is "
    "answered with its `Age` if not. `no-cache`: any is. `only-if-cached`: nothing is scored; 504 if the cache has no "
    "score that will do.",
)
_IF_NONE_MATCH = header("If-None-Match", "The `ETag` of an answer that is at hand: 304 if it still holds.")


@router.get(
    "/score/{entity_id:entity}",  # noqa: FAST003 - read from the raw path
    summary="The score of an entity",
    description="From the active snapshot. An entity that it lacks is scored online, if its features are known. "
    "`Age` and `Cache-Status` (RFC 9211) say where the answer comes from.",
    response_class=Response,
    responses=responses(Score, 304, 400, 404, 409, 422, 503, 504),
    openapi_extra={"parameters": [_ONE, _SNAPSHOT, _VERSION, _CACHE_CONTROL, _IF_NONE_MATCH]},
)
async def get_score(request: Request) -> Response:
    service, call = service_of(request), call_of(request)
    entity_id = entity_of(request.scope, "/score/")
    call.facts["entity_id"] = entity_id
    live = service.live()
    choice = _choice(request.query_params)
    async with within(service.settings.service.deadline_ms) as until:
        if choice is None:
            result = await _answer(live, entity_id, call, _terms(request, until))
        else:
            result = await read_resident(live, choice, entity_id, call.stages)
    call.facts |= {"source": result.source, "snapshot": result.snapshot}
    return _one(result, service.dependencies.wall.now(), request.headers.get("if-none-match"))


@router.post(
    "/score",
    summary="The scores of many entities, or of features given here",
    description="One result for each item, in order. An item that cannot be scored costs only itself.",
    response_class=Response,
    responses=responses(Results, 400, 413, 503, 504),
    openapi_extra={"parameters": [_CACHE_CONTROL], **json_body(Items.__name__)},
)
async def post_score(request: Request) -> Response:
    service, call = service_of(request), call_of(request)
    live = service.live()
    async with within(service.settings.service.deadline_ms) as until:
        items = await _read_items(request, service, live)
        asks = [item for item in items if isinstance(item, Ask)]
        replies = await live.desk.answer(asks, call.stages, _terms(request, until))
    snapshot = replies.active.meta.snapshot if replies.active is not None else None
    call.facts |= {"items": len(items), "snapshot": snapshot}
    now = service.dependencies.wall.now()
    return _json({"snapshot": snapshot, "results": list(_bodies(items, replies.results, now))}, NO_STORE)


async def _answer(live: Live, entity_id: str, call: Call, terms: Terms) -> Answer:
    replies = await live.desk.answer([Ask(entity_id=entity_id)], call.stages, terms)
    result = replies.results[0]
    if isinstance(result, RequestError):
        raise result
    return result


def _choice(options: Mapping[str, str]) -> Choice | None:
    """The snapshot that the query names; None: the active one, with all that is done for what it lacks."""
    snapshot, model_version = options.get("snapshot"), options.get("model_version")
    if snapshot is not None and model_version is not None:
        raise BadRequest("name a snapshot or a model_version, not both: a snapshot has one version")
    if snapshot is not None:
        return by_id(snapshot)
    return None if model_version is None else by_version(model_version)


def _terms(request: Request, until: float) -> Terms:
    return Terms(wish=Wish.parse(", ".join(request.headers.getlist("cache-control"))), until=until)


async def _read_items(request: Request, service: Service, live: Live) -> list[Ask | Refused]:
    limits = service.settings.service
    document = parse_json(await read_body(request, limits.max_body_bytes))
    return parse_items(document, limit=limits.max_items, features=live.features)


def _bodies(items: Sequence[Ask | Refused], results: Sequence[Result], now: float) -> Iterator[dict[str, object]]:
    """The results of the questions, and in their places the errors of the items that were none."""
    answered = iter(results)
    for item in items:
        result = item.error if isinstance(item, Refused) else next(answered)
        if isinstance(result, RequestError):
            yield {"entity_id": item.entity_id, "error": describe(result)}
        else:
            yield result.body(now)


def _one(answer: Answer, now: float, if_none_match: str | None) -> Response:
    """The answer, or 304 for a caller who has it already."""
    body = answer.body(now)
    tag = entity_tag(body)
    headers = headers_of(answer.cache, tag, answer.age(now) if answer.source == "cache" else None)
    if is_known(tag, if_none_match):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return _json(body, headers)


def _json(body: object, headers: Mapping[str, str]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers=headers)
