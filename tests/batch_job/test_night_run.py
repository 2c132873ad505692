"""One night's run, in a store in memory and on real files."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batch_job import night_run
from batch_job.job import Means
from batch_job.manifest import RunManifest, RunState
from batch_job.night_run import Covered, run_night
from batch_job.nightly import Nightly
from batch_job.progress import Silent
from shared.bundle import Bundle
from shared.errors import LeaseHeld, TooManyRejected
from shared.settings import Settings
from shared.snapshot import Found
from shared.store.interfaces import Store
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

Write = Callable[..., Path]


class Night:
    """A table, a bundle and a store; ``run`` is what the schedule's process does."""

    def __init__(self, bundle: Bundle, table: Path, means: Means, clock: FrozenClock, memory: MemoryStore) -> None:
        self.nightly = Nightly(bundle=bundle.path, table=str(table))
        self.means = means
        self.clock = clock
        self.store = memory.store
        self.due = datetime.fromtimestamp(clock.now() - 60, UTC)

    def run(self, *, only_if_open: bool = True) -> RunManifest | Covered:
        return run_night(self.nightly, self.means, self.due, only_if_open=only_if_open)

    def made(self, *, only_if_open: bool = True) -> RunManifest:
        found = self.run(only_if_open=only_if_open)
        assert isinstance(found, RunManifest)
        return found

    def next_night(self) -> None:
        self.clock.advance(86_400)
        self.due += timedelta(days=1)

    def folders(self) -> list[str]:
        return sorted(path.name for path in (self.means.settings.home / "runs").glob("purchase-*"))


@pytest.fixture
def night(bundle: Bundle, write: Write, means: Means, monkeypatch: pytest.MonkeyPatch) -> Night:
    clock = FrozenClock()
    memory = MemoryStore("purchase", clock)

    @contextmanager
    def opened(_settings: Settings, _model: str) -> Iterator[Store]:
        yield memory.store

    monkeypatch.setattr(night_run, "open_store", opened)
    return Night(bundle, write(), replace(means, clock=clock), clock, memory)


def test_a_night_is_scored_published_and_promoted(night: Night) -> None:
    """The active snapshot is the night's, and was scored since it was due."""
    manifest = night.made()
    active = night.store.catalogue.active()
    assert manifest.state is RunState.PROMOTED
    assert active is not None
    assert (active.meta.snapshot, active.meta.scored_at) == (manifest.snapshot, manifest.started_at)
    assert manifest.started_at >= night.due.timestamp()


def test_a_night_that_is_done_is_left_alone(night: Night) -> None:
    """Whatever wakes up a second time finds it covered; asked for by hand, it is scored anew."""
    first = night.made()
    assert night.run() == Covered(first.snapshot)
    assert night.made(only_if_open=False).state is RunState.PROMOTED
    assert len(night.folders()) == 2


def test_the_same_table_is_scored_anew_each_night(night: Night) -> None:
    """A table that did not change still gives a snapshot of its own: its age is that of the night's run."""
    first = night.made()
    night.next_night()
    second = night.made()
    assert second.run_key == first.run_key
    assert second.started_at - first.started_at == 86_400


def test_an_interrupted_night_goes_on_where_it_was(night: Night) -> None:
    """The next process takes up the same folder and snapshot."""

    class Stops(Silent):
        def step(self, name: str) -> None:
            if name == "scored":
                raise KeyboardInterrupt

    undisturbed, night.means = night.means, replace(night.means, observer=Stops())
    with pytest.raises(KeyboardInterrupt):
        night.run()
    assert night.store.leases.holder() is None
    night.means = undisturbed
    night.clock.advance(300)
    manifest = night.made()
    assert len(night.folders()) == 1
    assert manifest.started_at == int(night.clock.now()) - 300


@pytest.mark.parametrize(("left", "folders"), [(".lock", 1), ("manifest.json", 2)])
def test_a_folder_in_which_nothing_was_begun_is_taken(night: Night, left: str, folders: int) -> None:
    """Killed before its manifest was there; one with a manifest that cannot be read is left for a person to look at."""
    night.made()
    (made,) = (night.means.settings.home / "runs").glob("purchase-*")
    shutil.rmtree(made)
    made.mkdir()
    (made / left).touch()
    night.next_night()
    night.made()
    assert len(night.folders()) == folders


def test_what_last_night_left_is_not_gone_on_with(night: Night, bundle: Bundle) -> None:
    """A run that was begun before this night was due would be too old before it was promoted."""
    night.nightly = replace(night.nightly, max_rejected="0")
    table = pq.read_table(night.nightly.table)
    pq.write_table(table.set_column(1, "visits", pa.array([1, None, 2, 1])), night.nightly.table)
    with pytest.raises(TooManyRejected):
        night.run()
    night.next_night()
    night.nightly = replace(night.nightly, max_rejected="50%")
    assert night.made().started_at == int(night.clock.now())


def test_the_lease_is_held_for_the_whole_run(night: Night) -> None:
    """J9: from before the first row until after the flip, and its holder names the run."""
    seen: list[str | None] = []

    class Asks(Silent):
        def step(self, name: str) -> None:
            seen.append(night.store.leases.holder())

    night.means = replace(night.means, observer=Asks())
    manifest = night.made()
    assert {holder is not None and manifest.run_key[:12] in holder for holder in seen} == {True}
    assert night.store.leases.holder() is None


def test_somebody_else_at_work_is_named_at_once(night: Night) -> None:
    """Nothing is begun, nothing is waited for."""
    night.store.leases.acquire("ann@host 7 run 1a2b3c", 600)
    with pytest.raises(LeaseHeld, match="ann@host 7 run 1a2b3c"):
        night.run()
    assert not (night.means.settings.home / "runs").exists()


def test_the_newest_complete_partition_is_scored(night: Night, tmp_path: Path) -> None:
    """data_as_of is the partition's date; the days before it are left alone."""
    for day, visits in (("2023-11-12", 1), ("2023-11-13", 2), ("2023-11-14", 3)):
        folder = tmp_path / "days" / f"dt={day}"
        folder.mkdir(parents=True)
        columns = {"customer_id": ["a"], "visits": [visits], "returns": [0], "basket": [0]}
        pq.write_table(pa.table(columns), folder / "a.parquet")
        if day != "2023-11-14":
            (folder / "_SUCCESS").touch()
    night.nightly = replace(night.nightly, table=str(tmp_path / "days"))
    manifest = night.made()
    assert manifest.partition == "dt=2023-11-13"
    assert manifest.data_as_of == int(datetime(2023, 11, 13, tzinfo=UTC).timestamp())
    assert manifest.counts.scored == 1
    active = night.store.catalogue.active()
    assert active is not None
    (found,) = night.store.writer.read(active.meta, ["a"])
    assert isinstance(found, Found)
    assert round(found.scores[0], 4) == 0.8022


def test_folders_of_nights_that_the_store_has_no_more_are_removed(night: Night) -> None:
    """As many runs stay as snapshots do, so that the disk does not fill; other folders are not touched."""
    by_hand = night.means.settings.home / "runs" / "purchase-0123456789ab"
    by_hand.mkdir(parents=True)
    for _ in range(5):
        night.made()
        night.next_night()
    assert len(night.folders()) == 1 + night.means.settings.gates.keep
    assert by_hand.exists()
