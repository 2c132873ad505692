"""``PUT`` and ``DELETE /features/{entity_id}``."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.access import call_of
from service.body import parse_json, read_body
from service.contract import Features, json_body, path_id, responses
from service.entity import entity_of
from service.features import StoreFeatures
from service.file_store import NOT_KEPT
from service.items import Row, parse_features
from service.patience import deadline_of
from service.refusals import rejected_online
from service.runtime import Live, Service, service_of
from shared.errors import BadRequest, FeaturesNotKept
from shared.payload import payload_of

router = APIRouter(tags=["features"])


@router.put(
    "/features/{entity_id:entity}",  # noqa: FAST003 - read from the raw path
    summary="Keep the features of an entity that the batch has not scored",
    description="They are checked by the schema's rules first. The next question about the entity is scored from them, "
    "unless the active snapshot has a score of the batch for it.",
    status_code=204,
    response_class=Response,
    responses=responses(None, 400, 409, 413, 422, 503, 504),
    openapi_extra={"parameters": [path_id()], **json_body(Features.__name__)},
)
async def put_features(request: Request) -> Response:
    service, call = service_of(request), call_of(request)
    entity_id = entity_of(request.scope, "/features/")
    call.facts["entity_id"] = entity_id
    live = service.live()
    if live.alone:
        raise FeaturesNotKept(NOT_KEPT)
    if StoreFeatures.name not in live.chain.names:
        raise FeaturesNotKept("this service reads no features from the store; add 'store' to FORESCORE_FEATURES__URL")
    limits = service.settings.service
    body = await read_body(request, limits.max_body_bytes, limits.receive_seconds)
    async with deadline_of(request, limits.deadline_ms):
        row, ttl_seconds = await _read(body, service, live)
        await live.store.features.write(entity_id, _payload(row), ttl_seconds)
        await live.desk.features_changed(entity_id, row, call.stages)
    return Response(status_code=204)


@router.delete(
    "/features/{entity_id:entity}",  # noqa: FAST003 - read from the raw path
    summary="Forget the features of an entity",
    description="Those that are kept here; other sources keep theirs. 204 also where there are none. A score that was "
    "computed from them stays until the next snapshot is promoted.",
    status_code=204,
    response_class=Response,
    responses=responses(None, 409, 422, 503, 504),
    openapi_extra={"parameters": [path_id()]},
)
async def delete_features(request: Request) -> Response:
    service, call = service_of(request), call_of(request)
    entity_id = entity_of(request.scope, "/features/")
    call.facts["entity_id"] = entity_id
    live = service.live()
    async with deadline_of(request, service.settings.service.deadline_ms):
        await live.store.features.delete(entity_id)
        live.desk.flights.forget(entity_id)  # what is being computed from them is not joined from now on
    return Response(status_code=204)


async def _read(body: bytes, service: Service, live: Live) -> tuple[Row, int]:
    """The features, which fit the schema, and how many seconds to keep them."""
    document = parse_json(body)
    if not isinstance(document, dict) or document.keys() - {"ttl_seconds"} != {"features"}:
        raise BadRequest('the body is {"features": {...}}, and "ttl_seconds" beside it if wanted; see /docs')
    longest = service.settings.features.ttl_seconds
    ttl_seconds = document.get("ttl_seconds")
    if ttl_seconds is None:
        ttl_seconds = longest
    if type(ttl_seconds) is not int or not 1 <= ttl_seconds <= longest:
        raise BadRequest(f"ttl_seconds: a whole number from 1 to {longest}")
    row = parse_features(document["features"], live.features)
    rejection = await live.rows.check(row)
    if rejection is not None:
        raise rejected_online(rejection)
    return row, ttl_seconds


def _payload(row: Row) -> bytes:
    """What is kept is what was sent, or is refused: a number beyond float64 has no JSON of its own."""
    try:
        return payload_of(row)
    except ValueError:
        raise BadRequest("a number of the features is beyond what float64 holds; it cannot be kept") from None
