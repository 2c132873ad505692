"""A stage: a store, a service and backfills that belong together, all of them real processes."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from pydantic import SecretStr
from redis import Redis
from support.backfills import Backfill, BackfillServer, Order
from support.processes import children_of
from support.proxy import BadWire, bad_wire
from support.servers import HOST, ValkeyProcess, free_port, start_valkey, wait_until
from support.services import ServeProcess, serve_process

from batch_job.manifest import RunManifest, read_manifest
from drills.callers import Answer, Unseen, get
from drills.world import KNOWN, OUTPUT, World
from shared.layout import Keys
from shared.settings import RedisSettings, Settings
from shared.store.connect import open_store
from shared.store.interfaces import Store

NAMESPACE, MODEL = "drill", "purchase"
READY_SECONDS = 300
POLL_SECONDS = 0.1
FOR_DRILLS = {
    "DRILL_CLOCK",
    "PYTHONPATH",
    "FORESCORE_REDIS__BREAKER_SECONDS",
    "FORESCORE_REDIS__READ_TIMEOUT_MS",
    "FORESCORE_FEATURES__TIMEOUT_MS",
    "FORESCORE_SERVICE__POINTER_POLL_SECONDS",
    "FORESCORE_SERVICE__DEADLINE_MS",
}
CLOCK = Path(__file__).parents[1] / "support" / "shifted_clock"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Run:
    """One backfill of an edition of the table: begun, struck, resumed, always the same command."""

    stage: "Stage"
    version: str
    edition: int
    out: Path

    def start(self, **given: Any) -> Backfill:
        """Starts it; with ``at``, returns when it is at its step, unless it is killed there."""
        stage = self.stage
        order = Order(
            **{
                "bundle": str(stage.world.bundle(self.version)),
                "table": str(stage.world.table(self.edition)),
                "out": str(self.out),
                "folder": str(stage.folder / "orders" / self.out.name),
                "home": str(stage.home),
                "url": stage.valkey.url,
                "namespace": NAMESPACE,
                "chunk_size": 25,
                **given,
            }
        )
        waits = order.at is not None and order.how != "kill"
        return stage.backfills.start_until(order) if waits else stage.backfills.start(order)

    def complete(self, **given: Any) -> int:
        """Runs it to its end, whatever that is; the exit code."""
        started = self.start(**given)
        code = started.code()
        self.note()
        return code

    def note(self) -> None:
        """Lets the world know the snapshot, if it has a name already."""
        if (manifest := read_manifest(self.out)) is not None:
            self.stage.world.snapshots[manifest.snapshot] = self.edition

    @property
    def manifest(self) -> RunManifest:
        manifest = read_manifest(self.out)
        assert manifest is not None, f"{self.out} has no manifest"
        return manifest

    @property
    def steps(self) -> list[str]:
        return (self.stage.folder / "orders" / self.out.name / "steps").read_text().splitlines()

    @property
    def errors(self) -> str:
        return (self.stage.folder / "orders" / self.out.name / "errors").read_text()

    def parts(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((self.out / "parts").iterdir())}


@dataclass
class Stage:
    """``valkey``, and a service on ``url``, which reaches it through ``wire`` if there is one."""

    world: World
    folder: Path
    valkey: ValkeyProcess
    backfills: BackfillServer
    server: ServeProcess
    url: str
    client: httpx2.Client
    environment: Mapping[str, str]
    wire: BadWire | None
    unseen: Unseen

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def clock(self) -> Path:
        """The file that sets the clock of the service wrong."""
        return self.folder / "clock"

    def set_clock(self, seconds: float) -> None:
        """From now on the clock of the service, and of schedules, is wrong by so much."""
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(self.clock)

    def workers(self) -> list[int]:
        return children_of(self.server.process.pid)

    def new_run(self, version: str = "1", edition: int | None = None, out: Path | None = None) -> Run:
        """A backfill in a folder of its own, of a new edition unless it is named."""
        number = self.world.new_number()
        edition = number if edition is None else edition
        return Run(self, version, edition, out or self.home / "runs" / f"{MODEL}-{number}")

    def published(self, version: str = "1", **given: Any) -> Run:
        """A run that is done, and whose snapshot the service serves."""
        run = self.new_run(version)
        assert run.complete(**given) == 0, run.errors
        wait_until(lambda: self.is_cached(run), 30)
        return run

    def store(self) -> AbstractContextManager[Store]:
        """The store as the batch job has it."""
        return open_store(self.settings, MODEL)

    @property
    def settings(self) -> Settings:
        url = SecretStr(self.valkey.url)
        return Settings(redis=RedisSettings(url=url, namespace=NAMESPACE, read_timeout_ms=5000))

    def redis(self, **given: Any) -> "Redis":
        """A plain client, for doing harm."""
        return Redis(host=HOST, port=self.valkey.port, **given)

    @property
    def keys(self) -> Keys:
        return Keys(NAMESPACE, MODEL)

    def get(self, entity: str) -> Answer:
        """One answer, on the connection of this stage."""
        return get(self.client, entity)

    def probe(self, name: str) -> int:
        return self.client.get(name).status_code

    def status(self) -> str:
        return str(self.client.get("/readyz").json()["status"])

    def is_cached(self, run: Run, entity: str = KNOWN[0]) -> bool:
        """Whether the service has the entity's score from the run's snapshot, and the right one."""
        answer = self.get(entity)
        if answer.status != 200 or answer.body["source"] != "cache":
            return False
        right = self.world.batch_scores(run.version, run.edition)[entity]
        named = answer.body["snapshot"] == run.manifest.snapshot
        return named and bool(np.float32(answer.body["scores"][OUTPUT]) == right)

    def is_online(self, entity: str) -> bool:
        """Whether the service scores an entity now, and right."""
        answer = self.get(entity)
        return answer.status == 200 and self.world.fault(entity, answer.body) is None


@contextmanager
def opened_stage(
    world: World, folder: Path, *, workers: int = 1, wired: bool = False, usual: bool = False, **more: str
) -> Iterator[Stage]:
    """A stage on which a first edition is served; ``usual``: without the times that suit drills; ``more``: settings."""
    folder.mkdir(parents=True)
    (folder / "clock").write_text("0")
    with ExitStack() as stack:
        valkey = stack.enter_context(start_valkey(folder))
        wire = stack.enter_context(bad_wire(valkey.port)) if wired else None
        backfills = BackfillServer(folder, [world.bundle(version) for version in world.scorers])
        stack.callback(backfills.close)
        given = _environment(world, folder, valkey.port if wire is None else wire.port)
        kept = {name: value for name, value in given.items() if not (usual and name in FOR_DRILLS)}
        environment = kept | more
        arguments = [str(world.bundle()), "--port", str(free_port()), "--workers", str(workers)]
        server = stack.enter_context(serve_process(folder, *arguments, **environment))
        url = server.url()
        client = stack.enter_context(httpx2.Client(base_url=url, timeout=20))
        stage = Stage(world, folder, valkey, backfills, server, url, client, environment, wire, Unseen())
        wait_until(_ready(stage, workers), READY_SECONDS)
        stage.published()
        yield stage


def _ready(stage: Stage, workers: int) -> Callable[[], bool]:
    def ready() -> bool:
        if workers > 1 and stage.server.errors.count('"event":"ready"') < workers:
            return False
        try:
            return stage.probe("/readyz") == 200
        except httpx2.TransportError:
            return False

    return ready


def _environment(world: World, folder: Path, port: int) -> dict[str, str]:
    return {
        "DRILL_CLOCK": str(folder / "clock"),
        "PYTHONPATH": os.pathsep.join([str(CLOCK), str(ROOT)]),
        "FORESCORE_HOME": str(folder / "home"),
        "FORESCORE_REDIS__URL": f"redis://{HOST}:{port}",
        "FORESCORE_REDIS__NAMESPACE": NAMESPACE,
        "FORESCORE_REDIS__BREAKER_SECONDS": "0.2",
        "FORESCORE_REDIS__READ_TIMEOUT_MS": "300",
        "FORESCORE_FEATURES__URL": f"{world.features},store",
        "FORESCORE_FEATURES__TIMEOUT_MS": "2000",
        "FORESCORE_SERVICE__POINTER_POLL_SECONDS": str(POLL_SECONDS),
        "FORESCORE_SERVICE__DEADLINE_MS": "5000",
        "FORESCORE_SERVICE__DRAIN_SECONDS": "0",
        "FORESCORE_SCHEDULE__PORT": "0",
        "FORESCORE_SCHEDULE__POLL_SECONDS": "0.2",
        "FORESCORE_GATES__MAX_PSI": "100",
        "FORESCORE_ENGINE": "export",
        "FORESCORE_LOG_FORMAT": "json",
        "FORESCORE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def forget_saved(stage: Stage) -> None:
    """What the store saved is gone: it starts empty."""
    (stage.folder / "dump.rdb").unlink(missing_ok=True)


def keep_saved(stage: Stage, name: str) -> Path:
    """Saves what the store has now, and keeps a copy of it."""
    with stage.redis() as redis:
        redis.save()
    return Path(shutil.copy(stage.folder / "dump.rdb", stage.folder / name))
