"""Who opens closes: one task opens all that a service needs, in order, and closes it in the reverse order.

It works beside the event loop's other tasks, so that probes are answered from the first moment. What fails here leaves
a process that is alive, not ready, and says why.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import structlog
from fastapi import FastAPI

from service.batcher import Batcher, Limits, Threads
from service.card import model_card
from service.features import FeatureChain, UnknownIds
from service.file_store import file_store
from service.flight import Flights
from service.health import gauge
from service.ladder import Ladder
from service.lookup import Cache
from service.online import Desk
from service.pointer import Pointer
from service.refresh import AgeLimit
from service.runtime import Failed, Live, Pings, Service
from service.scoring import Computed, Model, Scoring
from service.shelf import Place, Shelf
from service.sources import open_sources
from service.warmup import warm_up
from service.writeback import TokenBucket, WriteBack
from shared.bundle import Bundle
from shared.clock import ThreadClock
from shared.errors import BundleConflict, ForescoreError, SettingsError, StoreError
from shared.libtorch import threads_in_use
from shared.snapshot import SnapshotMeta
from shared.store.inspection import warn_of_store_soon
from shared.store.interfaces import AsyncStore
from shared.telemetry import Logger

if TYPE_CHECKING:  # the scorer brings torch, which a process loads while it already answers its probes
    from shared.scorer import Scorer

GAUGE_SECONDS = 1.0
RECANCEL_SECONDS = 0.1
RECHECK_SECONDS = 5.0
"""How often a feature source that fails is asked whether it answers again."""

_log: Logger = structlog.get_logger()


class State(TypedDict):
    """What every request finds beside it."""

    service: Service


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[State]]


def lifespan_of(service: Service) -> Lifespan:
    """Starts the service with the application, and ends it with it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        opened = asyncio.Event()
        task = asyncio.create_task(_run(service, opened))
        if service.dependencies.opens_first:
            await opened.wait()
            service.live()
        yield State(service=service)
        await _end(task)
        service.lines.flush()

    return lifespan


async def _run(service: Service, opened: asyncio.Event) -> None:
    """Opens everything and holds it open until it is cancelled."""
    if service.dependencies.replaces:
        service.metrics.replaced(hung=service.dependencies.hung)
    try:
        async with AsyncExitStack() as stack:
            if (
                service.dependencies.looks_at_store and service.settings.store != "none"
            ):  # not beside the first requests
                stack.push_async_callback(_end, asyncio.create_task(warn_of_store_soon(service.settings)))
            live = await _open(stack, service)
            gauges = asyncio.create_task(_keep_gauges(live, service))
            stack.push_async_callback(_end, gauges)
            if service.pressure is not None:
                watch = service.pressure.watch(service.dependencies.monotonic, ThreadClock())
                stack.push_async_callback(_end, asyncio.create_task(watch))
            threads = threads_in_use()
            gc.collect()
            gc.freeze()  # what is there now stays: each full collection would look at all of it again
            service.phase = live
            service.metrics.ready(is_ready=True)
            _log.info("ready", device=live.scorer.device, tile=live.scorer.tile.rows, threads=threads)
            opened.set()
            await asyncio.Event().wait()
    except ForescoreError as error:
        _log.error("not ready", exc_info=error)
        service.phase = Failed(str(error))
    except Exception as error:  # noqa: BLE001 - a process that is not ready must be there to say so
        _log.error("not ready", exc_info=error)
        service.phase = Failed("it could not be started; the log says where")
    finally:
        opened.set()


async def _keep_gauges(live: Live, service: Service) -> None:
    """Sets the gauges that grow with time: whichever worker is asked for metrics, it reads those of all."""
    while True:
        await asyncio.sleep(GAUGE_SECONDS)
        gauge(live, service.metrics, service.dependencies.wall)


async def _open(stack: AsyncExitStack, service: Service) -> Live:
    settings, needs = service.settings, service.dependencies
    _log.info("loading", bundle=str(settings.bundle))
    bundle = await asyncio.to_thread(needs.load_bundle, _path_of_bundle(service))
    alone = settings.store == "none"
    shelf = _open_shelf(stack, service, bundle)
    store = (
        file_store(shelf, needs.monotonic)
        if alone
        else await stack.enter_async_context(needs.open_store(settings, bundle.name))
    )
    if alone:
        await shelf.follow(None)
    chain = FeatureChain(
        await open_sources(settings.features, None if alone else store, bundle.schema),
        settings.features.timeout_ms / 1000,
        service.metrics,
    )
    stack.push_async_callback(chain.close)
    await chain.check()
    pointer = Pointer(store.reader, needs.monotonic)
    with suppress(StoreError):
        await pointer.refresh()
    _require_one_version(pointer, bundle)

    def active() -> SnapshotMeta | None:
        return None if alone or pointer.active is None else pointer.active.meta

    await shelf.follow(active())
    scorer = await asyncio.to_thread(needs.open_scorer, bundle, settings)
    threads = Threads(encode=_open_thread(stack, "encode"), forward=_open_thread(stack, "forward"))
    batcher = _open_batcher(stack, service, scorer, threads)
    write_back = None if alone else _open_write_back(stack, service, store)
    watch = asyncio.create_task(pointer.watch(settings.service.pointer_poll_seconds))
    stack.push_async_callback(_end, watch)
    follow = asyncio.create_task(shelf.watch(active, settings.service.pointer_poll_seconds))
    stack.push_async_callback(_end, follow)
    recheck = asyncio.create_task(chain.watch(RECHECK_SECONDS))
    stack.push_async_callback(_end, recheck)
    scoring = Scoring(
        model=Model(bundle=bundle, golden_digest=scorer.golden_digest),
        chain=chain,
        unknown=UnknownIds(settings.features.unknown_seconds, needs.monotonic),
        rows=batcher,
        write_back=write_back,
        clock=needs.wall,
        metrics=service.metrics,
    )
    limit = AgeLimit.of(settings.service)
    ladder = Ladder(shelf, needs.wall, needs.monotonic, service.metrics, limit, alone=alone)
    cache = Cache(store.reader, pointer, needs.wall, limit, ladder.below)
    live = Live(
        scorer=scorer,
        store=store,
        pointer=pointer,
        chain=chain,
        rows=batcher,
        desk=_open_desk(stack, service, cache, scoring),
        pings=Pings(model=batcher.ping, store=store.reader.ping, features=chain.pings(store.reader.ping)),
        features=frozenset(feature.name for feature in bundle.schema.features),
        card=model_card(scorer),
        shelf=shelf,
        alone=alone,
    )
    if needs.warms_up:
        await warm_up(service, live, threads)
    return live


def _open_shelf(stack: AsyncExitStack, service: Service, bundle: Bundle) -> Shelf:
    settings = service.settings
    place = Place(runs=settings.runs_folder, model=bundle.name, bundle_digest=bundle.digest)
    shelf = Shelf(place, _open_thread(stack, "file"), settings.service.file_timeout_ms / 1000, service.metrics)
    stack.push_async_callback(shelf.close)
    return shelf


def _path_of_bundle(service: Service) -> Path:
    if service.settings.bundle is None:
        raise SettingsError("no bundle: set FORESCORE_BUNDLE, or name it: forescore serve BUNDLE")
    return service.settings.bundle


def _open_batcher(stack: AsyncExitStack, service: Service, scorer: "Scorer", threads: Threads) -> Batcher:
    limits = service.settings.service
    batcher = Batcher(
        scorer,
        threads,
        Limits(batch_rows=limits.max_batch, wait_seconds=limits.max_wait_ms / 1000, queue_rows=limits.max_queue_rows),
        service.dependencies.monotonic,
        service.metrics,
    )
    stack.push_async_callback(batcher.close)
    return batcher


def _open_thread(stack: AsyncExitStack, name: str) -> ThreadPoolExecutor:
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
    stack.callback(executor.shutdown, wait=False, cancel_futures=True)
    return executor


def _open_desk(stack: AsyncExitStack, service: Service, cache: Cache, scoring: Scoring) -> Desk:
    """A shared computation may take as long as a request; half of that before its end it is not joined any more."""
    milliseconds = service.settings.service.deadline_ms
    flights: Flights[Computed] = Flights(milliseconds / 2000, service.dependencies.monotonic)
    stack.push_async_callback(flights.close)
    return Desk(
        cache=cache,
        scoring=scoring,
        flights=flights,
        flight_ms=milliseconds,
        renewals=TokenBucket(service.settings.service.write_back_per_second, service.dependencies.monotonic),
        clock=service.dependencies.wall,
        metrics=service.metrics,
    )


def _open_write_back(stack: AsyncExitStack, service: Service, store: AsyncStore) -> WriteBack | None:
    settings = service.settings.service
    if not settings.write_back:
        return None
    budget = TokenBucket(settings.write_back_per_second, service.dependencies.monotonic)
    write_back = WriteBack(store.online, budget, service.metrics)
    stack.push_async_callback(write_back.close)
    return write_back


def _require_one_version(pointer: Pointer, bundle: Bundle) -> None:
    """One name and version must mean one model: what is published under ours must come from this very bundle."""
    active = pointer.active
    if (
        active is not None
        and active.meta.model_version == bundle.version
        and active.meta.bundle_digest != bundle.digest
    ):
        raise BundleConflict(
            f"bundle {bundle.name} {bundle.version}: the active snapshot of that version is from another bundle; "
            "serve the bundle that it was scored with, or give the new one a version of its own"
        )


async def _end(task: "asyncio.Task[None]") -> None:
    """Cancels until it has ended: before Python 3.12, ``asyncio.wait_for`` in a client can lose a cancellation
    (https://github.com/python/cpython/issues/86296)."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=RECANCEL_SECONDS)
