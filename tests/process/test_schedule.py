"""``forescore schedule`` as a process, with a real store: alone, beside others, and told to end."""

import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from support.commands import CommandProcess
from support.servers import ValkeyProcess, wait_until

from shared.settings import RedisSettings, Settings
from shared.snapshot import Flip
from shared.store.connect import open_store
from shared.testing.bundles import purchase_bundle

pytestmark = pytest.mark.timeout(240)


class Place:
    """A home, a bundle, a table, and a corner of the store."""

    def __init__(self, tmp_path: Path, url: str, namespace: str) -> None:
        self.home = tmp_path / "home"
        self.bundle = purchase_bundle(tmp_path / "bundle").path
        self.table = tmp_path / "customers.parquet"
        columns = {"visits": [1, 0, 2, 1], "returns": [0, 3, 1, 1], "basket": [2, 1, 0, 1]}
        pq.write_table(pa.table({"customer_id": [0, 1, 2, 3], **columns}), self.table)
        self.settings = Settings(redis=RedisSettings(url=SecretStr(url), namespace=namespace))
        self.environment = {
            "FORESCORE_HOME": str(self.home),
            "FORESCORE_REDIS__URL": url,
            "FORESCORE_REDIS__NAMESPACE": namespace,
            "FORESCORE_SCHEDULE__PORT": "0",
            "FORESCORE_SCHEDULE__POLL_SECONDS": "0.2",
            "FORESCORE_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        self.started: list[CommandProcess] = []
        self._folder = tmp_path / "processes"

    def start(self, command: str, *options: str) -> CommandProcess:
        arguments = [command, str(self.bundle), str(self.table), *options]
        process = CommandProcess(self._folder / str(len(self.started)), self.environment, arguments)
        self.started.append(process)
        return process

    def holder(self) -> str | None:
        with open_store(self.settings, "purchase") as store:
            return store.leases.holder()

    def is_begun(self) -> bool:
        """Whether a run has its manifest."""
        return any((self.home / "runs").glob("*/manifest.json"))

    def history(self) -> list[Flip]:
        with open_store(self.settings, "purchase") as store:
            return store.catalogue.history()


@pytest.fixture
def place(tmp_path: Path, valkey: ValkeyProcess, namespace: str) -> Iterator[Place]:
    made = Place(tmp_path, valkey.url, namespace)
    yield made
    for process in made.started:
        process.kill()


def test_two_schedules_and_a_backfill_at_once_make_one_run(place: Place) -> None:
    """J5: one of the three does it; the others say who, and find the night done."""
    schedules = [place.start("schedule"), place.start("schedule")]
    backfill = place.start("backfill")
    code = backfill.code()
    for schedule in schedules:
        wait_until(schedule.is_ready, 120)
    flips = sorted(place.history(), key=lambda flip: flip.epoch)
    with open_store(place.settings, "purchase") as store:
        begun = {row.meta.snapshot: row.meta.scored_at for row in store.catalogue.snapshots()}
    scheduled = [path.name for path in (place.home / "runs").glob("purchase-*") if "Z-" in path.name]
    if code == 0:
        assert len(flips) == 1 + len(scheduled)
        assert all(begun[after.snapshot] >= before.at for before, after in pairwise(flips))
    else:
        assert "the lease is held by" in backfill.errors
        assert (len(flips), len(scheduled)) == (1, 1)
    assert len(scheduled) <= 1
    assert [schedule.end() for schedule in schedules] == [0, 0]
    assert place.holder() is None
    assert len(place.history()) == len(flips)


def test_a_schedule_that_is_told_to_end_ends_its_run_in_good_order(place: Place) -> None:
    """SIGTERM while a run is at work: 0, the lease is given back, and the next schedule goes on with that very run."""
    schedule = place.start("schedule")
    wait_until(place.is_begun, 60)
    assert schedule.end() == 0
    assert place.holder() is None
    assert place.history() == []
    following = place.start("schedule")
    wait_until(following.is_ready, 120)
    assert following.end() == 0
    assert len(place.history()) == 1
    assert len(list((place.home / "runs").glob("purchase-*"))) == 1


def test_a_schedule_that_is_interrupted(place: Place) -> None:
    """Ctrl-C while a run is at work: 130, and the lease is given back."""
    schedule = place.start("schedule")
    wait_until(lambda: place.holder() is not None, 60)
    assert schedule.end(signal.SIGINT) == 130
    assert place.holder() is None
    assert place.history() == []


def test_a_backfill_that_is_told_to_end_gives_its_lease_back(place: Place) -> None:
    """SIGTERM is as Ctrl-C: 130, nothing published, no lease left, and the same command goes on."""
    backfill = place.start("backfill")
    wait_until(lambda: place.holder() is not None, 60)
    assert backfill.end() == 130
    assert place.holder() is None
    assert place.history() == []
    assert place.start("backfill").code() == 0
    assert len(place.history()) == 1


def test_a_run_whose_schedule_was_killed_is_not_made_twice(place: Place) -> None:
    """kill -9 of the schedule leaves its run at work: the next schedule names it, and finds the night done."""
    schedule = place.start("schedule")
    wait_until(lambda: place.holder() is not None, 60)
    schedule.kill()
    following = place.start("schedule")
    wait_until(following.is_ready, 120)
    assert following.end() == 0
    assert len(place.history()) == 1
