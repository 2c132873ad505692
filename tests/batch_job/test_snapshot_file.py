"""The file of a snapshot, as publishing and the commands leave it."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import structlog
from support.snapshots import promote, publish_batch, rollback, snapshot_meta

from batch_job import snapshot_file_writer
from batch_job.atomic import write_atomic
from batch_job.into import Into
from batch_job.job import Means, open_job
from batch_job.publish import publish_run
from batch_job.run import run_job
from batch_job.snapshot_file import record_active
from batch_job.snapshot_file_writer import write_snapshot_file
from batch_job.source import Selection
from shared.bundle import Bundle
from shared.errors import SnapshotHeld
from shared.settings import GateSettings
from shared.snapshot import Lookup, SnapshotMeta
from shared.snapshot_file import open_snapshot_file
from shared.snapshot_file_layout import FILE, NEXT
from shared.snapshot_file_record import find_file, open_newest, read_record, record_path
from shared.store.interfaces import OnlineScore, PublishBatch
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

Write = Callable[..., Path]
IDS = ["0", "1", "2", "3", "bad", "new"]
FEW = {"visits": [1, 0, 2, 1, None], "returns": [0, 3, 1, 1, 0], "basket": [2, 1, 0, 1, 0]}


class Bench:
    """A store, a folder of runs, and a table that is scored and published into them."""

    def __init__(self, bundle: Bundle, means: Means, write: Write) -> None:
        self.bundle, self.write = bundle, write
        self.means = replace(
            means,
            settings=means.settings.model_copy(update={"gates": GateSettings(max_psi=100, min_coverage=0.5)}),
            entropy=os.urandom,
        )
        self.memory = MemoryStore("purchase", means.clock)
        self.store = self.memory.store
        self.runs = self.means.settings.runs_folder

    def publish(self, name: str, into: Into = Into.ALONE, **columns: object) -> Path:
        """Scores and publishes a table, a second after the one before; returns the run's folder."""
        assert isinstance(self.means.clock, FrozenClock)
        self.means.clock.advance(1)
        table = self.write(f"{name}.parquet", **(columns or {"customer_id": IDS[:5], **FEW}))
        job = open_job(table, bundle=self.bundle, chunk_size=2, selection=Selection(where="basket >= 0"))
        run_job(job, self.runs / name, self.means)
        publish_run(self.runs / name, self.store, self.means, into=into)
        return self.runs / name

    def part(self, name: str, into: Into) -> Path:
        changed = {"visits": [4, 1], "returns": [0, 0], "basket": [1, 2]}
        return self.publish(name, into, customer_id=["0", "new"], **changed)

    def active(self) -> SnapshotMeta:
        active = self.store.catalogue.active()
        assert active is not None
        return active.meta

    def recorded(self) -> Path | None:
        entry = read_record(self.runs, "purchase").active
        assert entry is not None
        assert entry.snapshot == self.active().snapshot
        return None if entry.file is None else self.runs / entry.file

    def in_store(self) -> list[Lookup]:
        return self.store.writer.read(self.active(), IDS)

    def require_told(self, path: Path) -> None:
        """The file is that of the active snapshot, and says what the store says."""
        assert self.recorded() == path
        with open_snapshot_file(path) as opened:
            assert opened.is_unchanged()
            assert opened.meta == self.active()
            assert opened.lookup(IDS) == self.in_store()


@pytest.fixture
def bench(bundle: Bundle, means: Means, write: Write) -> Bench:
    return Bench(bundle, means, write)


def test_publishing_leaves_a_file_that_says_the_same(bench: Bench) -> None:
    """Every entity of the store is in it, rejected ones too, beside the parts that it was made of."""
    out = bench.publish("one")
    bench.require_told(out / FILE)
    assert {path.name for path in out.iterdir()} >= {FILE, "parts", "manifest.json"}
    assert not list(out.glob("spool*"))


def test_the_same_run_leaves_the_same_bytes(bench: Bench) -> None:
    """Removed, it is written again by the same command, without scoring, byte for byte."""
    out = bench.publish("one")
    before = (out / FILE).read_bytes()
    (out / FILE).unlink()
    publish_run(out, bench.store, bench.means)
    assert (out / FILE).read_bytes() == before
    bench.require_told(out / FILE)


def test_a_copy_with_a_part_replaced_has_a_file_of_its_own(bench: Bench) -> None:
    """It says what the store says: old and new entities, and the scores that the service added."""
    bench.publish("one")
    online = bench.memory.async_store.online
    asyncio.run(online.write_back(bench.active(), [OnlineScore("new", [0.5], 7)]))
    out = bench.part("two", Into.NEW)
    bench.require_told(out / FILE)


def test_an_update_in_place_leaves_a_file_of_what_is_there_now(bench: Bench) -> None:
    """The old file is not that of the snapshot any more, though it has its name."""
    old = bench.publish("one")
    out = bench.part("two", Into.ACTIVE)
    bench.require_told(out / FILE)
    with open_snapshot_file(old / FILE) as opened:
        assert opened.meta.snapshot == bench.active().snapshot
    assert find_file(bench.runs, bench.active()) == out / FILE


@pytest.mark.parametrize("into", [Into.ALONE, Into.ACTIVE])
def test_a_file_that_cannot_be_written_costs_no_publication(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, into: Into
) -> None:
    """A full disk: the snapshot is promoted, a line says why it has no file, and no older file passes for it."""
    bench.publish("one")

    def full(path: Path, *_: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(snapshot_file_writer, "write_atomic", full)
    with structlog.testing.capture_logs() as lines:
        out = bench.part("two", into)
    assert {line["reason"] for line in lines if line["log_level"] == "warning"} == {"no space left on device"}
    assert bench.recorded() is None
    assert find_file(bench.runs, bench.active()) is None
    monkeypatch.setattr(snapshot_file_writer, "write_atomic", write_atomic)
    publish_run(out, bench.store, bench.means, into=into)
    bench.require_told(out / FILE)


def test_the_record_follows_promotion_and_rollback(bench: Bench) -> None:
    """Whoever flips the pointer on a host that has the runs leaves the record of the file that is active then."""
    one = bench.publish("one")
    first = bench.active().snapshot
    two = bench.publish("two")
    bench.require_told(two / FILE)
    rollback(bench.store)
    record_active(bench.runs, "purchase", bench.store)
    bench.require_told(one / FILE)
    promote(bench.store, next(row.meta.snapshot for row in bench.store.catalogue.snapshots() if not row.active))
    record_active(bench.runs, "purchase", bench.store)
    bench.require_told(two / FILE)
    bench.store.control.retire(first)
    record_active(bench.runs, "purchase", bench.store)
    bench.require_told(two / FILE)
    assert (one / FILE).exists()


def test_a_held_snapshot_waits_with_its_file(bench: Bench) -> None:
    """Held, its file is there and the active one's stays recorded; promoted, it is the one."""
    one = bench.publish("one")
    bench.means = replace(bench.means, settings=bench.means.settings.model_copy(update={"gates": GateSettings()}))
    with pytest.raises(SnapshotHeld):
        bench.publish("two", customer_id=["0"], visits=[1], returns=[0], basket=[2])
    bench.require_told(one / FILE)
    held = next(row.meta.snapshot for row in bench.store.catalogue.snapshots() if not row.active)
    lease = bench.store.leases.acquire("test", 30)
    bench.store.control.promote(held, lease, by="test", forced=True)
    record_active(bench.runs, "purchase", bench.store)
    bench.require_told(bench.runs / "two" / NEXT)


def test_a_host_without_the_file_records_that_there_is_none(bench: Bench) -> None:
    """What is active has no file here: nothing older passes for it."""
    out = bench.publish("one")
    (out / FILE).unlink()
    record = record_active(bench.runs, "purchase", bench.store)
    assert record is not None
    assert record.active is not None
    assert record.active.file is None
    assert open_newest(bench.runs, "purchase", bench.bundle.digest) is None


def test_a_host_without_the_runs_records_nothing(bench: Bench, tmp_path: Path) -> None:
    """A command on another host makes no folder there."""
    bench.publish("one")
    assert record_active(tmp_path / "elsewhere", "purchase", bench.store) is None
    assert not (tmp_path / "elsewhere").exists()


def test_the_newest_file_of_each_bundle_is_known(bench: Bench, other_bundle: Bundle) -> None:
    """Where nothing is known of the pointer, a service finds the snapshot of its own bundle."""
    out = bench.publish("one")
    opened = open_newest(bench.runs, "purchase", bench.bundle.digest)
    assert opened is not None
    with opened:
        assert opened.meta == bench.active()
    assert open_newest(bench.runs, "purchase", other_bundle.digest) is None
    record_path(bench.runs, "purchase").write_text("{")
    assert open_newest(bench.runs, "purchase", bench.bundle.digest) is None
    assert out.is_dir()


def test_a_run_elsewhere_is_recorded_by_its_whole_path(bench: Bench, tmp_path: Path) -> None:
    """--out outside of the folder of the runs: the record says where."""
    table = bench.write("t.parquet")
    out = tmp_path / "elsewhere" / "run"
    run_job(open_job(table, bundle=bench.bundle, chunk_size=2), out, bench.means)
    publish_run(out, bench.store, bench.means)
    assert bench.recorded() == out / FILE


def test_memory_is_bounded_by_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows there are, no table that is sorted holds many more than a batch."""
    seen: list[int] = []
    real = snapshot_file_writer._sorted

    def watched(batches: Iterable[PublishBatch]) -> Iterator[pa.Table]:
        for table in real(batches):
            seen.append(table.num_rows)
            yield table

    monkeypatch.setattr(snapshot_file_writer, "_sorted", watched)
    meta = snapshot_meta(entities=10_000)
    whole = publish_batch(meta, {f"C{number}": 0.5 for number in range(10_000)})
    batches = [
        PublishBatch(
            ids=whole.ids[first:][:500], buckets=whole.buckets[first:][:500], values=whole.values[first:][:500]
        )
        for first in range(0, 10_000, 500)
    ]
    write_snapshot_file(tmp_path / FILE, meta, batches, batch_rows=1000)
    assert sum(seen) == 10_000
    assert max(seen) < 1000
