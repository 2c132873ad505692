"""``/livez``, ``/readyz``, ``/healthz`` and ``/metrics``: for machines, without a key."""

from collections.abc import Mapping

import orjson
from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from service.contract import Readiness, Responses, not_ready, query
from service.health import gauge, is_ready, report, verbose_report
from service.runtime import Live, Service, service_of

router = APIRouter(tags=["probes"])

_READINESS: Responses = {
    200: {"model": Readiness, "description": "Ready, or degraded: the store does not answer."},
    503: not_ready("Loading, failed or stopping: the body says why."),
}


@router.get(
    "/livez", summary="Whether the process runs", description="It looks at nothing else.", response_class=Response
)
async def get_livez() -> Response:
    return Response(b'{"status":"alive"}', media_type="application/json")


@router.get(
    "/readyz",
    summary="Whether this process answers score calls",
    description="Ready means that it has scored its golden rows on this host. An outage of the store does not change "
    "that: the status is `degraded` then.",
    response_class=Response,
    responses=_READINESS,
    openapi_extra={
        "parameters": [query("verbose", "Also ask each part now, for half a second at most, and tell how it is.")]
    },
)
async def get_readyz(request: Request) -> Response:
    service = service_of(request)
    if "verbose" in request.query_params:
        return _readiness(service, await verbose_report(service))
    return _readiness(service, _brief(service))


@router.get(
    "/healthz",
    summary="The same as /readyz",
    description="Under its older name.",
    response_class=Response,
    responses=_READINESS,
)
async def get_healthz(request: Request) -> Response:
    service = service_of(request)
    return _readiness(service, _brief(service))


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def get_metrics(request: Request) -> Response:
    service = service_of(request)
    if isinstance(service.phase, Live):
        gauge(service.phase, service.metrics, service.dependencies.wall)
    service.lines.flush()
    return Response(generate_latest(service.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})


def _brief(service: Service) -> Mapping[str, object]:
    """Where keys are asked for, anybody may ask this, and why it is so is for those with a key: ?verbose tells."""
    told = report(service)
    return {"status": told["status"]} if service.settings.keys.are_set else told


def _readiness(service: Service, told: Mapping[str, object]) -> Response:
    body = orjson.dumps(told)
    if is_ready(service):
        return Response(body, media_type="application/json")
    later = {"retry-after": str(service.settings.service.retry_after_seconds)}
    return Response(body, status_code=503, media_type="application/json", headers=later)
