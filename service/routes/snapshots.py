"""``GET /snapshots``."""

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.answers import instant, parity_with
from service.contract import Snapshots, responses
from service.patience import deadline_of
from service.runtime import service_of
from shared.snapshot import Listed

router = APIRouter(tags=["model"])


@router.get(
    "/snapshots",
    summary="The snapshots in the store",
    description="Newest first: which is active, which are held by a gate, which can be read by id.",
    response_class=Response,
    responses=responses(Snapshots, 503, 504),
)
async def get_snapshots(request: Request) -> Response:
    service = service_of(request)
    live = service.live()
    async with deadline_of(request, service.settings.service.deadline_ms):
        listed = await live.store.reader.snapshots()
    now = service.dependencies.wall.now()
    body = {
        "model": live.scorer.bundle.name,
        "source": "file" if live.alone else "store",
        "active": next((one.meta.snapshot for one in listed if one.active), None),
        "snapshots": [_row(one, now, live.scorer.golden_digest) for one in listed],
    }
    return Response(orjson.dumps(body), media_type="application/json")


def _row(one: Listed, now: float, golden_digest: str) -> dict[str, object]:
    meta = one.meta
    return {
        "snapshot": meta.snapshot,
        "model_version": meta.model_version,
        "state": one.state.value,
        "active": one.active,
        "published": meta.published,
        "input_rows": meta.input_rows,
        "scored": meta.scored,
        "rejected": meta.rejected,
        "duplicate": meta.duplicate,
        "scored_at": instant(meta.scored_at),
        "data_as_of": instant(meta.data_as_of),
        "age_seconds": max(0, int(now) - meta.scored_at),
        "created_by": meta.created_by,
        "bundle_digest": meta.bundle_digest,
        "parity": parity_with(meta, golden_digest),
    }
