"""``GET /score/{entity_id}`` and ``POST /score``."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.contract import CACHED, UNCACHED, Items, Results, Score, header, json_body, path_id, query, responses
from service.exchange import MANY, Reply, many, one
from service.runtime import service_of

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
    responses=responses(Score, 304, 400, 404, 409, 422, 503, 504, headers=CACHED),
    openapi_extra={"parameters": [_ONE, _SNAPSHOT, _VERSION, _CACHE_CONTROL, _IF_NONE_MATCH]},
)
async def get_score(request: Request) -> Response:
    return _response(await one(service_of(request), request))


@router.post(
    MANY,
    summary="The scores of many entities, or of features given here",
    description="One result for each item, in order. An item that cannot be scored costs only itself.",
    response_class=Response,
    responses=responses(Results, 400, 413, 503, 504, headers=UNCACHED),
    openapi_extra={"parameters": [_CACHE_CONTROL], **json_body(Items.__name__)},
)
async def post_score(request: Request) -> Response:
    return _response(await many(service_of(request), request))


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, reply.headers, reply.media_type)
