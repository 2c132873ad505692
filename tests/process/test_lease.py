"""One run at a time, with real processes and a real store: paused, killed, waited for."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from redis import Redis
from support.backfills import Backfill, BackfillServer, Order
from support.servers import ValkeyProcess, wait_until

from batch_job.manifest import RunManifest, read_manifest
from shared.layout import Keys
from shared.settings import RedisSettings, Settings
from shared.snapshot import SnapshotMeta
from shared.store.connect import open_store
from shared.testing.bundles import purchase_bundle

FIRST, SECOND = "1", "2"
BRIEFLY, LONG = 1.0, 600.0


@dataclass(frozen=True)
class Run:
    """A backfill that was started, and the folder that is its own."""

    folder: Path
    process: Backfill

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def errors(self) -> str:
        return self.process.errors

    @property
    def manifest(self) -> RunManifest:
        manifest = read_manifest(self.folder / "run")
        assert manifest is not None
        return manifest

    def go_on(self) -> None:
        self.process.go_on()

    def signal(self, number: signal.Signals) -> None:
        self.process.signal(number)

    def code(self) -> int:
        return self.process.code()


class Server:
    """The process that starts backfills, and what they work on."""

    def __init__(self, folder: Path, valkey: ValkeyProcess) -> None:
        self.folder, self.valkey = folder, valkey
        self.bundles = {
            FIRST: purchase_bundle(folder / "first", version=FIRST).path,
            SECOND: purchase_bundle(folder / "second", version=SECOND, weights=(0.5, 0.1, -0.3)).path,
        }
        self.table = folder / "customers.parquet"
        columns = {"visits": [1, 0, 2, 1], "returns": [0, 3, 1, 1], "basket": [2, 1, 0, 1]}
        pq.write_table(pa.table({"customer_id": [0, 1, 2, 3], **columns}), self.table)
        self.backfills = BackfillServer(folder, self.bundles.values())


class Corner:
    """One corner of the store."""

    def __init__(self, server: Server, tmp_path: Path) -> None:
        self.server, self.tmp_path = server, tmp_path
        self.namespace = f"l{uuid4().hex[:16]}"

    def start(
        self,
        version: str,
        *,
        at: str | None = None,
        stop: bool = False,
        wait: bool = False,
        lease_seconds: float = LONG,
        folder: Path | None = None,
        home: str = "home",
    ) -> Run:
        """Starts a backfill, and returns when it pauses, if it is to."""
        place = folder or self.tmp_path / uuid4().hex
        order = Order(
            bundle=str(self.server.bundles[version]),
            table=str(self.server.table),
            out=str(place / "run"),
            folder=str(place),
            home=str(self.tmp_path / home),
            url=self.server.valkey.url,
            namespace=self.namespace,
            at=at,
            how="stop" if stop else "wait",
            wait=wait,
            lease_seconds=lease_seconds,
        )
        backfills = self.server.backfills
        return Run(place, backfills.start(order) if at is None else backfills.start_until(order))

    def active(self) -> SnapshotMeta | None:
        with self.opened() as store:
            active = store.catalogue.active()
        return None if active is None else active.meta

    def holder(self) -> str | None:
        with self.opened() as store:
            return store.leases.holder()

    def opened(self) -> Any:
        redis = RedisSettings(url=SecretStr(self.server.valkey.url), namespace=self.namespace)
        return open_store(Settings(redis=redis), "purchase")

    def seconds_left(self) -> float:
        with Redis.from_url(self.server.valkey.url) as client:
            return int(client.pttl(self._lease)) / 1000

    def lapse(self) -> None:
        """The time of the lease is over."""
        with Redis.from_url(self.server.valkey.url) as client:
            assert client.pexpire(self._lease, 1)
        wait_until(lambda: self.holder() is None)

    @property
    def _lease(self) -> str:
        return Keys(self.namespace, "purchase").lease()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("leased"), valkey)
    yield made
    made.backfills.close()


@pytest.fixture
def corner(server: Server, tmp_path: Path) -> Corner:
    return Corner(server, tmp_path)


@pytest.mark.parametrize("step", ["chunk 0 scored", "parts complete", "lease acquired", "slab written", "ready"])
def test_a_holder_that_slept_cannot_flip_the_pointer(corner: Corner, step: str) -> None:
    """J7, J8: paused past its lease while another one publishes; woken, it is fenced, and the other's scores stay."""
    sleeper = corner.start(FIRST, at=step, stop=True)
    corner.lapse()
    assert corner.start(SECOND).code() == 0
    sleeper.signal(signal.SIGCONT)
    assert sleeper.code() == 1
    assert sleeper.errors.startswith("Fenced: ")
    active = corner.active()
    assert active is not None
    assert active.model_version == SECOND


@pytest.mark.parametrize("step", ["chunk 0 scored", "ready"])
def test_a_holder_that_slept_is_fenced_while_the_other_still_works(corner: Corner, step: str) -> None:
    """It wakes before the other has published: it is no more the one that may."""
    sleeper = corner.start(FIRST, at=step, stop=True, lease_seconds=BRIEFLY)
    wait_until(lambda: corner.holder() is None)
    other = corner.start(SECOND, at="chunk 0 scored")
    sleeper.signal(signal.SIGCONT)
    assert sleeper.code() == 1
    assert corner.active() is None
    other.go_on()
    assert other.code() == 0
    active = corner.active()
    assert active is not None
    assert active.model_version == SECOND


def test_a_run_that_takes_longer_than_its_lease_keeps_it(corner: Corner) -> None:
    """J7: it is renewed in the background, whatever the run itself is doing."""
    run = corner.start(FIRST, at="chunk 0 scored", lease_seconds=BRIEFLY)
    before = corner.holder()
    seen = [corner.seconds_left()]
    renewals = 0

    def renewed_often() -> bool:
        nonlocal renewals
        seen.append(corner.seconds_left())
        renewals += seen[-1] > seen[-2]
        return renewals >= 4

    wait_until(renewed_often)
    assert corner.holder() == before
    run.go_on()
    assert run.code() == 0
    assert corner.holder() is None


def test_a_second_backfill_is_refused_with_the_holders_run(corner: Corner) -> None:
    """J9: from the first chunk on, at once, with exit code 1 and the run's key."""
    run = corner.start(FIRST, at="chunk 0 scored")
    second = corner.start(SECOND)
    assert second.code() == 1
    assert second.errors.startswith("LeaseHeld: ")
    assert f"{run.pid} run {run.manifest.run_key[:12]}" in second.errors
    assert not (second.folder / "run").exists()
    run.go_on()
    assert run.code() == 0


def test_a_second_backfill_that_waits_has_its_turn(corner: Corner) -> None:
    """J9, with --wait: both runs are made, one after the other."""
    run = corner.start(FIRST, at="chunk 0 scored")
    second = corner.start(SECOND, wait=True)
    wait_until(lambda: "waiting for" in second.errors)
    assert not (second.folder / "run").exists()
    run.go_on()
    assert (run.code(), second.code()) == (0, 0)
    with corner.opened() as store:
        flips = [flip.snapshot for flip in store.catalogue.history()]
    assert flips == [second.manifest.snapshot, run.manifest.snapshot]


def test_a_killed_holder_is_replaced_when_its_lease_has_lapsed(corner: Corner) -> None:
    """kill -9: from another home nobody can know that it died; after its lease the same run goes on."""
    run = corner.start(FIRST, at="chunk 1 scored")
    run.signal(signal.SIGKILL)
    assert run.code() == -signal.SIGKILL
    early = corner.start(FIRST, folder=run.folder, home="other")
    assert early.code() == 1
    assert early.errors.startswith("LeaseHeld: ")
    corner.lapse()
    assert corner.start(FIRST, folder=run.folder, home="other").code() == 0
    active = corner.active()
    assert active is not None
    assert active.snapshot == run.manifest.snapshot


def test_a_killed_holder_of_the_same_home_is_replaced_at_once(corner: Corner) -> None:
    """kill -9: its lease lasts for ten minutes more, and the next one need not wait for that."""
    run = corner.start(FIRST, at="chunk 1 scored")
    run.signal(signal.SIGKILL)
    assert run.code() == -signal.SIGKILL
    assert corner.holder() is not None
    assert corner.start(FIRST, folder=run.folder).code() == 0
    active = corner.active()
    assert active is not None
    assert active.snapshot == run.manifest.snapshot
