"""The application, put together."""

from importlib.metadata import version

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from service import contract, problems
from service.access import AccessLog
from service.lifespan import lifespan_of
from service.routes import features, index, model, probes, score, snapshots
from service.runtime import Dependencies, Service
from shared.settings import Settings
from shared.telemetry import Metrics

DESCRIPTION = "Scores ready before they are asked for: from the active snapshot, or scored online to the same bits."


def create_app(
    settings: Settings, *, dependencies: Dependencies | None = None, registry: CollectorRegistry | None = None
) -> FastAPI:
    """The service as an ASGI application. Nothing is opened before its lifespan starts."""
    service = Service(
        settings=settings,
        metrics=Metrics(registry or CollectorRegistry()),
        dependencies=dependencies or Dependencies(),
    )
    app = FastAPI(
        title="Forescore",
        version=version("forescore"),
        description=DESCRIPTION,
        lifespan=lifespan_of(service),
        redirect_slashes=False,
    )
    app.add_middleware(AccessLog, metrics=service.metrics, clock=service.dependencies.monotonic)
    problems.install(app, settings.service.retry_after_seconds)
    app.include_router(score.router)
    app.include_router(features.router)
    app.include_router(model.router)
    app.include_router(snapshots.router)
    app.include_router(probes.router)
    app.include_router(index.router)
    contract.install(app)
    return app
