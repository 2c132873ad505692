"""``GET /model``."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.contract import Card, responses
from service.runtime import service_of

router = APIRouter(tags=["model"])


@router.get(
    "/model",
    summary="The contract of the model that is loaded",
    description="Features with their rules, input tensors, outputs with their class mapping, versions and digests.",
    response_class=Response,
    responses=responses(Card, 503),
)
async def get_model(request: Request) -> Response:
    return Response(service_of(request).live().card, media_type="application/json")
