"""The application, put together."""

from importlib.metadata import version

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Receive, Scope, Send

from service import contract, docs, exchange, problems
from service.access import QUIET, AccessLog
from service.border import Border
from service.direct import Direct
from service.guard import Guard, is_needed
from service.lane import FastLane
from service.lifespan import lifespan_of
from service.lines import RequestLines
from service.pressure import Pressure
from service.routes import features, index, model, probes, score, snapshots
from service.runtime import Dependencies, Service
from service.shedder import Shedder
from service.tracing import telemetry_of
from shared.metrics import Metrics
from shared.settings import Settings

DESCRIPTION = "Scores ready before they are asked for: from the active snapshot, or scored online to the same bits."


class Application(FastAPI):
    """FastAPI, before it the lane that answers questions about scores, and before that the guard, if there is one."""

    border: Border | None = None
    shedder: Shedder | None = None
    guard: ASGIApp | None = None
    lane: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.guard or self.lane or self.by_framework)(scope, receive, send)

    async def by_framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers as FastAPI does, by its middleware and routes."""
        await super().__call__(scope, receive, send)


def create_app(
    settings: Settings, *, dependencies: Dependencies | None = None, registry: CollectorRegistry | None = None
) -> FastAPI:
    """The service as an ASGI application. Nothing is opened before its lifespan starts."""
    metrics = Metrics(registry or CollectorRegistry())
    service = Service(
        settings=settings,
        metrics=metrics,
        dependencies=dependencies or Dependencies(),
        lines=RequestLines(
            metrics,
            keep=settings.log_requests,
            buffer_ms=settings.log_buffer_ms,
            route=exchange.ONE,
        ),
        pressure=Pressure(settings.limits.delay_ms / 1000, metrics.pressure) if settings.limits.delay_ms else None,
    )
    app = Application(
        title="Forescore",
        version=version("forescore"),
        description=DESCRIPTION,
        lifespan=lifespan_of(service),
        redirect_slashes=False,
        docs_url=None,  # our own
        redoc_url=None,
        telemetry=telemetry_of(service.dependencies.telemetry, QUIET),
    )
    app.add_middleware(AccessLog, metrics=metrics, clock=service.dependencies.monotonic, lines=service.lines)
    problems.install(app, settings.service.retry_after_seconds)
    app.include_router(score.router)
    app.include_router(features.router)
    app.include_router(model.router)
    app.include_router(snapshots.router)
    app.include_router(probes.router)
    app.include_router(index.router)
    docs.install(app)
    contract.install(app)
    if settings.service.fast_lane:
        direct = AccessLog(Direct(service), metrics=metrics, clock=service.dependencies.monotonic, lines=service.lines)
        app.lane = FastLane(app.by_framework, direct, service)
    app.border = Border(service)
    if service.pressure is not None:
        app.shedder = Shedder(service, service.pressure)
    if is_needed(settings):
        app.guard = Guard(app.lane or app.by_framework, service)
    return app
