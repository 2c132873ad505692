"""The lease of a whole run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from batch_job.job import Means
from batch_job.lease import whoami
from batch_job.progress import Silent
from batch_job.run_lease import RunLease, run_lease
from shared.errors import Fenced, LeaseHeld, StoreDown
from shared.settings import GateSettings, Settings
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore


class Bench:
    def __init__(self, tmp_path: Path) -> None:
        self.clock = FrozenClock()
        self.memory = MemoryStore("churn", self.clock)
        self.leases = self.memory.store.leases
        self.means = Means(settings=Settings(home=tmp_path, gates=GateSettings(lease_seconds=30)), sleep=self.sleep)
        self.slept = 0.0
        self.file = tmp_path / "leases" / "fs-churn"

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.clock.advance(seconds)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def held(bench: Bench) -> Iterator[RunLease]:
    with run_lease(bench.leases, "churn", "run 1", bench.means) as lease:
        yield lease


def test_it_names_who_holds_it(bench: Bench, held: RunLease) -> None:
    """User, host, process and run; whoever else comes is told so at once."""
    assert bench.leases.holder() == f"{whoami()} run 1"
    with (
        pytest.raises(LeaseHeld, match="run 1") as caught,
        run_lease(bench.leases, "churn", "run 2", bench.means),
    ):
        pass
    assert caught.value.holder == held.lease.holder
    assert bench.slept == 0


def test_it_is_given_back(bench: Bench) -> None:
    """Also when the block ends by an error, or by Ctrl-C."""
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), run_lease(bench.leases, "churn", "run 1", bench.means):
            raise error
        assert bench.leases.holder() is None


def test_another_model_is_another_lease(tmp_path: Path, bench: Bench, held: RunLease) -> None:
    """Runs of two models do not exclude one another."""
    other = MemoryStore("other", bench.clock)
    with run_lease(other.store.leases, "other", "run 2", bench.means):
        assert bench.leases.holder() == held.lease.holder


def test_who_waits_is_told_once_for_whom(bench: Bench) -> None:
    """--wait: until the lease lapses or is given back."""
    bench.leases.acquire("ann@host 7 run 9", 120)
    told: list[str] = []
    with run_lease(bench.leases, "churn", "run 1", bench.means, wait=True, told=told.append):
        assert told == ["waiting for ann@host 7 run 9"]
    assert bench.slept == 120


def test_renewing_outlasts_the_time_of_the_lease(bench: Bench, held: RunLease) -> None:
    """J7: a run longer than its lease keeps it."""
    for _ in range(10):
        bench.clock.advance(20)
        held.renew()
    held.require()
    assert bench.leases.holder() == held.lease.holder


def test_a_lost_lease_ends_the_run_at_its_next_step(bench: Bench, held: RunLease) -> None:
    """J8: whoever slept past it is fenced at whatever it does next."""
    bench.clock.advance(31)
    bench.leases.acquire("somebody else", 30)
    held.renew()
    observer = held.watching(Silent())
    with pytest.raises(Fenced, match="passed to somebody else"):
        observer.step("part written")


def test_an_outage_of_the_store_is_no_loss(bench: Bench, held: RunLease) -> None:
    """The store was away for a moment: the lease is still ours when it is back."""
    bench.memory.failure = StoreDown("gone")
    held.renew()
    bench.memory.failure = None
    held.renew()
    held.require()


def test_renewing_ends_with_the_loss(bench: Bench, held: RunLease) -> None:
    """The thread in the background does not go on for ever."""
    bench.memory.lose_everything()
    held.renew()
    held.keep(Event())
    assert held.lost is not None


def test_a_store_that_is_gone_at_the_end_hides_nothing(bench: Bench) -> None:
    """The error that ends the run is the one that is told."""

    def fail() -> None:
        bench.memory.failure = StoreDown("gone")
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), run_lease(bench.leases, "churn", "run 1", bench.means):
        fail()


def test_a_dead_holder_on_this_home_is_replaced_at_once(bench: Bench) -> None:
    """Its file is unlocked and names it: the kernel says that it died, so nobody need wait."""
    bench.leases.acquire("ann@host 7 run 9", 600)
    bench.file.parent.mkdir(parents=True)
    bench.file.write_text("ann@host 7 run 9\n")
    with run_lease(bench.leases, "churn", "run 1", bench.means) as held:
        assert bench.leases.holder() == held.lease.holder
        assert bench.file.read_text() == f"{held.lease.holder}\n"


def test_one_that_came_in_between_forgets_no_dead(bench: Bench) -> None:
    """Killed between writing its name and being given the lease: the next one still knows who held it."""
    bench.leases.acquire("ann@host 7 run 9", 600)
    bench.file.parent.mkdir(parents=True)
    bench.file.write_text("bob@host 8 run 9\nann@host 7 run 9\n")
    with run_lease(bench.leases, "churn", "run 1", bench.means):
        pass


def test_a_holder_that_is_not_known_to_be_dead_is_not_replaced(bench: Bench) -> None:
    """Another home's, another host's: it must lapse by itself."""
    bench.leases.acquire("ann@host 7 run 9", 600)
    bench.file.parent.mkdir(parents=True)
    bench.file.write_text("bob@host 8 run 9\n")
    with pytest.raises(LeaseHeld, match="ann"), run_lease(bench.leases, "churn", "run 1", bench.means):
        pass


def test_a_holder_that_lives_is_not_replaced(bench: Bench, held: RunLease) -> None:
    """Its file is locked for as long as it lives, also if it is paused."""
    for _ in range(2):
        with pytest.raises(LeaseHeld), run_lease(bench.leases, "churn", "run 2", bench.means):
            pass
    assert bench.leases.holder() == held.lease.holder


def test_one_that_lapsed_while_paused_does_not_hold_up_the_next(bench: Bench, held: RunLease) -> None:
    """The paused one still has the file locked; the lease decides, not the file."""
    bench.clock.advance(31)
    second = replace(bench.means, settings=bench.means.settings)
    with run_lease(bench.leases, "churn", "run 2", second) as other:
        assert other.lease.epoch == held.lease.epoch + 1
        held.renew()
        with pytest.raises(Fenced):
            held.require()
