"""The service for tests: in this process on any store, or as a process of its own on a real one."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from fastapi.telemetry import TelemetryConfig
from pydantic import SecretStr
from starlette.testclient import TestClient
from support.servers import wait_until
from support.warm import WarmProcess, warm_server

from service.app import create_app
from service.runtime import Dependencies
from shared.clock import Clock, MonotonicClock, WallClock
from shared.scorer import Scorer
from shared.settings import FeatureSettings, RedisSettings, ServiceSettings, Settings
from shared.store.connect import open_async_store
from shared.store.interfaces import AsyncStore
from shared.testing.store import MemoryStore

OpenStore = Callable[[Settings, str], AbstractAsyncContextManager[AsyncStore]]
ROOT = Path(__file__).parents[2]


def service_settings(
    scorer: Scorer | None = None,
    *,
    features: str = "store",
    redis: RedisSettings | None = None,
    unknown_seconds: float = 0,
    **service: Any,
) -> Settings:
    """Settings for tests: a promotion is seen soon, a deadline is far, an unknown id is asked for each time."""
    given = {"pointer_poll_seconds": 0.05, "deadline_ms": 20_000, **service}
    return Settings(
        bundle=None if scorer is None else scorer.bundle.path,
        redis=redis or RedisSettings(),
        service=ServiceSettings.model_validate(given),
        features=FeatureSettings(url=SecretStr(features), timeout_ms=5_000, unknown_seconds=unknown_seconds),
    )


@contextmanager
def serving(
    scorer: Scorer,
    store: MemoryStore | OpenStore = open_async_store,
    settings: Settings | None = None,
    *,
    wall: Clock | None = None,
    monotonic: Clock | None = None,
    telemetry: TelemetryConfig | None = None,
    warms_up: bool = False,
    looks_at_store: bool = True,
) -> Iterator[TestClient]:
    """A ready service in this process. The scorer is the one given, so that it is not opened for each test anew."""
    dependencies = Dependencies(
        open_scorer=lambda _bundle, _settings: scorer,
        open_store=opener(store) if isinstance(store, MemoryStore) else store,
        wall=wall or WallClock(),
        monotonic=monotonic or MonotonicClock(),
        telemetry=telemetry or {},
        warms_up=warms_up,
        looks_at_store=looks_at_store,
    )
    app = create_app(settings or service_settings(scorer), dependencies=dependencies)
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_until(lambda: client.get("/readyz").json()["status"] != "loading")
        assert client.get("/readyz").status_code == 200, client.get("/readyz").text
        yield client


def opener(memory: MemoryStore) -> OpenStore:
    """Opens the service's side of a memory store."""

    @asynccontextmanager
    async def opened(_settings: Settings, _model: str) -> AsyncIterator[AsyncStore]:
        yield memory.async_store

    return opened


class ServeProcess:
    """``forescore serve`` as a process, with what it prints in files. It ends without a drain, unless it is told.
    ``warm``: it has imported everything already, so that how it starts is not what an operator sees."""

    def __init__(
        self, folder: Path, arguments: list[str], environment: Mapping[str, str], *, warm: bool = False
    ) -> None:
        self._output = folder / "serve.out"
        self._errors = folder / "serve.err"
        given = {**os.environ, "FORESCORE_SERVICE__DRAIN_SECONDS": "0", **environment}
        self.process: subprocess.Popen[bytes] | WarmProcess
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            if warm:
                self.process = warm_server().start(["serve", *arguments], given, self._output, self._errors)
            else:
                command = [sys.executable, "-m", "forescore", "serve", *arguments]
                self.process = subprocess.Popen(command, stdout=output, stderr=errors, cwd=ROOT, env=given)

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        return self._errors.read_text(encoding="utf-8")

    def url(self) -> str:
        """Where it listens, as it says itself."""
        wait_until(lambda: "http://" in self.output or self.process.poll() is not None, 60)
        return next(word for word in self.output.split() if word.startswith("http://"))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=30)


@contextmanager
def serve_process(folder: Path, *arguments: str, warm: bool = False, **environment: str) -> Iterator[ServeProcess]:
    """Starts the command; ``environment`` is added to this process's own."""
    folder.mkdir(parents=True, exist_ok=True)
    server = ServeProcess(folder, list(arguments), environment, warm=warm)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def ready_process(folder: Path, *arguments: str, warm: bool = True, **environment: str) -> Iterator[httpx2.Client]:
    """A client of a process that is ready. Most are warm when they start: few tests are about the start."""
    with serve_process(folder, *arguments, "--port", "0", warm=warm, **environment) as server:
        url = server.url()
        with httpx2.Client(base_url=url, timeout=30) as client:
            wait_until(lambda: _is_ready(client), 60)
            yield client


def _is_ready(client: httpx2.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False
