"""The examination: settings, host, store, model, bundle, in this order, whatever of them can be had."""

import sys
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from batch_job.doctor import bundle as bundles
from batch_job.doctor import host, permissions, server, snapshots
from batch_job.doctor import settings as environments
from batch_job.doctor.finding import Case, Check, Finding, NotLooked, Verdict, failure, note, ok
from shared.bundle import Bundle, load_bundle
from shared.clock import Clock
from shared.engine import EngineChoice
from shared.errors import ForescoreError, SettingsError
from shared.scorer import open_scorer
from shared.settings import Settings, load_settings
from shared.snapshot import SnapshotMeta
from shared.store.probe import Probe, open_probe
from shared.telemetry import configure_logging

Served: TypeAlias = SnapshotMeta | None
"""The active snapshot, where it can be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be examined. ``seconds`` bounds each reply of the store."""

    bundle: Path | None
    model: str | None
    reader: str | None
    writer: str | None
    seconds: float
    environment: Mapping[str, str]
    wall: Clock
    stopwatch: Clock


def examine(request: Request) -> Iterator[Finding]:
    """All findings, as they are made. Nothing that a check meets ends the examination."""
    yield from run(environments.VARIABLES, request.environment)
    try:
        settings = load_settings()
    except SettingsError as error:
        yield _finding(
            "settings", "FORESCORE_* in the environment", failure(str(error), "mend it: nothing else was looked at")
        )
        return
    configure_logging(settings, sys.stderr)
    yield from run(environments.CHECKS, settings)
    yield from run(host.CHECKS, host.Host(settings=settings, wall=request.wall))
    verdict, bundle = _loaded(request.bundle or settings.bundle)
    served = yield from _of_store(request, settings, bundle)
    yield _finding("bundle", "bundle.json and the digests of all files", verdict)
    if bundle is not None:
        yield from _of_bundle(settings, bundle, served)


def run(checks: Sequence[Check[Case]], case: Case) -> Iterator[Finding]:
    """Every check's findings. One that cannot look is a finding itself."""
    for check in checks:
        try:
            verdicts = list(check.look(case))
        except Exception as error:  # noqa: BLE001 - a check that breaks must not hide what the others see
            verdicts = [verdict_on(error)]
        yield from (_finding(check.name, check.looks_at, verdict) for verdict in verdicts)


def verdict_on(error: Exception) -> Verdict:
    """What an exception says of the thing that was looked at. Its text is told only if it is ours."""
    match error:
        case NotLooked():
            return note(f"not looked at: {error}")
        case ForescoreError():
            return failure(str(error), "")
        case _:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            return failure(f"the check itself failed: {type(error).__name__} at {where}", "tell us: it should not")


def _loaded(path: Path | None) -> tuple[Verdict, Bundle | None]:
    if path is None:
        return note("none was named", "forescore doctor BUNDLE, or set FORESCORE_BUNDLE"), None
    try:
        bundle = load_bundle(path)
    except ForescoreError as error:
        return failure(str(error), ""), None
    return ok(f"{bundle.name} {bundle.version} in {path}, digest {bundle.digest[:12]}"), bundle


def _of_store(request: Request, settings: Settings, bundle: Bundle | None) -> Generator[Finding, None, Served]:
    with ExitStack() as stack:
        try:
            probe = stack.enter_context(open_probe(settings, seconds=request.seconds))
            probe.ping()
        except ForescoreError as error:
            skipped = len((*server.CHECKS, *snapshots.CHECKS, *permissions.CHECKS))
            step = f"mend it and look again: {skipped} checks of the store could not be made"
            yield _finding("store", "PING", failure(str(error), step))
            return None
        yield _finding("store", "PING", ok(f"{probe.where} answers"))
        return (yield from _of_server(request, settings, probe, bundle))


def _of_server(
    request: Request, settings: Settings, probe: Probe, bundle: Bundle | None
) -> Generator[Finding, None, Served]:
    try:
        name = request.model or (_only(probe.models()) if bundle is None else bundle.name)
        probe = probe if name is None else probe.of_model(name)
        seen = server.Server(
            settings=settings,
            probe=probe,
            wall=request.wall,
            stopwatch=request.stopwatch,
            told=probe.nodes(),
            config=probe.config(),
        )
    except ForescoreError as error:
        yield _finding("store", "INFO, CONFIG GET, the set of models", verdict_on(error))
        return None
    yield from run(server.CHECKS, seen)
    if name is None:
        yield _finding(
            "model", "the set of models", note("none was named, and the store does not have just one", "--model")
        )
        return None
    yield from run(
        permissions.CHECKS,
        permissions.Users(settings=settings, probe=probe, reader=request.reader, writer=request.writer),
    )
    return (yield from _of_model(seen))


def _of_model(seen: server.Server) -> Generator[Finding, None, Served]:
    try:
        model = snapshots.look_at(seen)
    except Exception as error:  # noqa: BLE001 - as in run
        yield _finding("model", "the pointer and the list of snapshots", verdict_on(error))
        return None
    yield from run(snapshots.CHECKS, model)
    return None if model.active is None else model.active.meta


def _of_bundle(settings: Settings, bundle: Bundle, served: Served) -> Iterator[Finding]:
    choice = EngineChoice.of(settings)
    if choice.wanted == "compiled":
        choice = replace(choice, wanted="auto")  # what is not compiled is found, and not compiled here and now
    try:
        scorer = open_scorer(bundle, device=settings.device, threads=settings.threads or 1, engine=choice)
    except Exception as error:  # noqa: BLE001 - as in run
        yield _finding("certified", "digests, golden rows, tile", verdict_on(error))
        return
    yield from run(bundles.CHECKS, bundles.OnHost(settings=settings, bundle=bundle, scorer=scorer, served=served))


def _only(models: list[str]) -> str | None:
    return models[0] if len(models) == 1 else None


def _finding(check: str, looked_at: str, verdict: Verdict) -> Finding:
    return Finding(
        check=check, level=verdict.level, looked_at=looked_at, found=verdict.found, next_step=verdict.next_step
    )
