"""What a service process is, from its first moment to its last: loading, then ready or failed."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fastapi.telemetry import TelemetryConfig
from starlette.requests import Request

from service.features import FeatureChain
from service.forward import RowScorer
from service.lines import RequestLines
from service.online import Desk
from service.pointer import Pointer
from service.pressure import Pressure
from service.shelf import Shelf
from service.threads import pass_threads
from shared.bundle import Bundle, load_bundle
from shared.clock import Clock, MonotonicClock, WallClock
from shared.errors import NotReady
from shared.metrics import Metrics
from shared.settings import Settings
from shared.store.connect import open_async_store
from shared.store.interfaces import AsyncStore

if TYPE_CHECKING:  # the scorer brings torch, which a process loads while it already answers its probes
    from shared.scorer import Scorer


def open_scorer_of(bundle: Bundle, settings: Settings) -> "Scorer":
    """Loads torch and the graph, and proves the graph on this host: seconds, off the event loop."""
    from shared.engine import EngineChoice  # noqa: PLC0415 - torch, see above
    from shared.scorer import open_scorer  # noqa: PLC0415 - the same

    engine = EngineChoice.of(settings)
    return open_scorer(bundle, device=settings.device, threads=pass_threads(settings), engine=engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What a service takes from outside of itself; tests bring their own."""

    load_bundle: Callable[[Path], Bundle] = load_bundle
    open_scorer: Callable[[Bundle, Settings], "Scorer"] = open_scorer_of
    open_store: Callable[[Settings, str], AbstractAsyncContextManager[AsyncStore]] = open_async_store
    wall: Clock = field(default_factory=WallClock)
    monotonic: Clock = field(default_factory=MonotonicClock)
    opens_first: bool = False
    """Whether no connection is taken before all is open, and a failure ends the process: others answer meanwhile."""
    warms_up: bool = False
    """Whether the ways of requests are gone before the first one comes (``service.warmup``)."""
    replaces: bool = False
    hung: bool = False
    """Whether this worker was started in place of one that died."""
    looks_at_store: bool = True
    """Whether it warns of a store that is set up badly: of several workers, one does."""
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    """Replaces parts of what FastAPI is told of OpenTelemetry."""


@dataclass(frozen=True, slots=True)
class Loading:
    """The golden rows are not scored yet."""

    reason: str = "the model is being loaded and checked"


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot become ready: the process stays up to say why."""

    reason: str


Ping = Callable[[], Awaitable[object]]
"""Returns if the thing is well, and raises if it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pings:
    """One for each thing that a ready process leans on."""

    model: Ping
    store: Ping
    features: Mapping[str, Ping]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """All that a ready process answers with."""

    scorer: "Scorer"
    store: AsyncStore
    pointer: Pointer
    chain: FeatureChain
    rows: RowScorer
    desk: Desk
    pings: Pings
    features: frozenset[str]
    """The names that a request may use."""
    card: bytes
    """The body of ``GET /model``."""
    shelf: Shelf
    """The active snapshot's file."""
    alone: bool = False
    """Whether there is no store, and the file is all that scores are looked up in."""


Phase = Loading | Failed | Live


@dataclass(slots=True, kw_only=True)
class Service:
    """The typed state of the application."""

    settings: Settings
    metrics: Metrics
    dependencies: Dependencies
    lines: RequestLines
    pressure: Pressure | None = None
    """None where nothing is refused for the event loop's delay."""
    phase: Phase = field(default_factory=Loading)
    stopping: bool = False
    """Whether it was told to end: it answers on, and asks to be left alone."""

    def live(self) -> Live:
        """What to answer with; NotReady says why there is nothing yet."""
        if isinstance(self.phase, Live):
            return self.phase
        raise NotReady(self.phase.reason)


def service_of(request: Request) -> Service:
    """The service that the lifespan put beside the request."""
    return cast("Service", request.state.service)
