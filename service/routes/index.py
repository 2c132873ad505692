"""``GET /``: where to go from here."""

import orjson
from fastapi import APIRouter
from starlette.responses import Response

router = APIRouter(include_in_schema=False)

_INDEX = orjson.dumps(
    {
        "service": "forescore",
        "docs": "/docs",
        "score": "/score/{entity_id}",
        "model": "/model",
        "snapshots": "/snapshots",
    }
)


@router.get("/")
async def get_index() -> Response:
    return Response(_INDEX, media_type="application/json")
