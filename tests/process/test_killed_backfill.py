"""kill -9 of the backfill, at each step and at each file event, with real processes and a real store."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from support.backfills import BackfillServer, Order
from support.servers import ValkeyProcess

from batch_job.into import Into
from batch_job.manifest import RunState, read_manifest
from shared.settings import RedisSettings, Settings
from shared.snapshot import Found, KnownRejected, SnapshotMeta, SnapshotState
from shared.store.connect import open_store
from shared.store.interfaces import Store
from shared.testing.bundles import purchase_bundle

IDS = ("0", "1", "2", "3", "bad", "5", "6")
OLD, NEW = "1", "2"


@dataclass(frozen=True)
class End:
    """What a backfill left behind."""

    parts: dict[str, bytes]
    answers: list[object]
    states: list[tuple[str, str, bool]]


class Bench:
    """A server that forks backfills, and what they work on: an old version, and a new one to replace it."""

    def __init__(self, folder: Path, server: ValkeyProcess) -> None:
        self.folder, self.server = folder, server
        self.bundles = {
            OLD: purchase_bundle(folder / "old", version=OLD).path,
            NEW: purchase_bundle(folder / "new", version=NEW, weights=(0.5, 0.1, -0.3)).path,
        }
        self.table = folder / "customers.parquet"
        columns = {
            "visits": [1, 0, 2, 1, None, 3, 4],
            "returns": [0, 3, 1, 1, 0, 0, 0],
            "basket": [2, 1, 0, 1, 0, 1, 1],
        }
        pq.write_table(pa.table({"customer_id": list(IDS), **columns}), self.table)
        self.part = folder / "part.parquet"
        changed = {"visits": [4, 2, 1], "returns": [0, 1, 0], "basket": [1, 0, 2]}
        pq.write_table(pa.table({"customer_id": ["0", "bad", "new"], **changed}), self.part)
        self.backfills = BackfillServer(folder, self.bundles.values())

    def trial(self) -> "Trial":
        return Trial(self, self.folder / "runs" / uuid4().hex)


class Trial:
    """One corner of the store and one folder, in which the old version is active."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench, self.folder = bench, folder
        self.namespace = f"k{uuid4().hex[:16]}"
        folder.mkdir(parents=True)
        assert self.backfill(OLD) == 0

    def backfill(self, version: str, *, at: int | None = None, files: bool = False, into: Into | None = None) -> int:
        """Backfills the table; with ``into``, the part."""
        order = Order(
            bundle=str(self.bench.bundles[version]),
            table=str(self.bench.table if into is None else self.bench.part),
            out=str(self.folder / (version if into is None else "part")),
            folder=str(self.folder / "process"),
            home=str(self.folder / (version if into is None else "part")),
            url=self.bench.server.url,
            namespace=self.namespace,
            at=at,
            files=files,
            where=None if into is None else "visits > 0",
            into=into,
            lease_seconds=1,
        )
        self.last = self.bench.backfills.start(order)
        return self.last.code()

    def begin_again(self) -> None:
        """Back to the old version, with nothing left of the new one."""
        shutil.rmtree(self.folder / NEW)
        with self.store() as store:
            lease = store.leases.acquire("test", 30)
            for row in store.catalogue.snapshots():
                if row.meta.model_version == OLD:
                    store.control.promote(row.meta.snapshot, lease, by="test")
            for row in store.catalogue.snapshots():
                if row.meta.model_version == NEW:
                    store.control.retire(row.meta.snapshot, force=True)
            store.leases.release(lease)

    def store(self) -> AbstractContextManager[Store]:
        redis = RedisSettings(url=SecretStr(self.bench.server.url), namespace=self.namespace)
        return open_store(Settings(redis=redis), "purchase")

    def steps(self) -> list[str]:
        return self.last.steps

    def active(self) -> SnapshotMeta:
        with self.store() as store:
            active = store.catalogue.active()
        assert active is not None
        return active.meta

    def answers(self) -> list[object]:
        with self.store() as store:
            return [_plain(found) for found in store.writer.read(self.active(), (*IDS, "new"))]

    def end(self) -> End:
        with self.store() as store:
            active = store.catalogue.active()
            assert active is not None
            answers = [active.meta.model_version, *map(_plain, store.writer.read(active.meta, IDS))]
            listed = store.catalogue.snapshots()
        parts = {path.name: path.read_bytes() for path in (self.folder / NEW / "parts").glob("*")}
        states = sorted((row.meta.model_version, row.state.value, row.active) for row in listed)
        return End(parts=parts, answers=answers, states=states)


def _plain(found: object) -> object:
    match found:
        case Found(scores=scores):
            return scores
        case KnownRejected(code=code, field=field):
            return (code, field)
        case _:
            return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("killed"), valkey)
    yield made
    made.backfills.close()


@pytest.mark.parametrize("files", [False, True], ids=["steps", "file events"])
@pytest.mark.timeout(600)
def test_a_backfill_that_is_killed_anywhere_ends_as_if_it_had_not_been(bench: Bench, *, files: bool) -> None:
    """D4 to D7: whenever it dies, readers see the old snapshot whole or the new one whole; the same command resumes,
    and the parts, the store and the manifest are those of a run that nobody disturbed."""
    trial = bench.trial()
    before = trial.end().answers
    assert trial.backfill(NEW, files=files) == 0
    steps, expected = trial.steps(), trial.end()
    assert expected.answers[0] == NEW
    assert len(expected.parts) == 4
    assert len(steps) > 30
    for at in range(1, len(steps) + 1):
        trial.begin_again()
        assert trial.end().answers == before
        assert trial.backfill(NEW, at=at, files=files) == -signal.SIGKILL, trial.steps()
        assert trial.end().answers in (before, expected.answers), trial.steps()
        assert trial.backfill(NEW) == 0, (at, trial.steps())
        found = trial.end()
        assert found == expected, (at, steps[at - 1])
        manifest = read_manifest(trial.folder / NEW)
        assert manifest is not None
        assert manifest.state is RunState.PROMOTED
        counts = manifest.counts
        assert (counts.input, counts.scored, counts.rejected, counts.duplicate) == (7, 6, 1, 0)


def test_the_steps_cover_the_whole_way(bench: Bench) -> None:
    """Between each two steps of the run and of the publication there is a place to be killed at."""
    trial = bench.trial()
    assert trial.backfill(NEW) == 0
    steps = trial.steps()
    named = ["locked", "begun", "part-00003.parquet written", "part-00003.parquet renamed", "scored", "lease acquired"]
    named += ["snapshot begun", "slab written", "verified", SnapshotState.READY.value, "promoted"]
    assert [steps.index(name) for name in named] == sorted(steps.index(name) for name in named)


@pytest.mark.parametrize("into", [Into.NEW, Into.ACTIVE])
@pytest.mark.timeout(600)
def test_a_part_that_is_killed_anywhere_joins_as_if_it_had_not_been(bench: Bench, into: Into) -> None:
    """D4, D5: killed between any two steps from the scores to the end, the same command ends the same way. Readers of a
    copy see the old snapshot whole or the new one whole, readers of an update the old or the new value of each entity.
    """
    trial = bench.trial()
    before = trial.answers()
    assert trial.backfill(OLD, into=into) == 0
    steps, after, expected = trial.steps(), trial.answers(), trial.active()
    named = ["scored", "lease acquired", "surveyed", "slab written", "verified", "reported"]
    named += ["snapshot begun", "ready", "promoted"] if into is Into.NEW else ["update announced", "whole"]
    assert set(named) <= set(steps)
    assert [old == new for old, new in zip(before, after, strict=True)] == [
        *([False] + [True] * 3),
        False,
        True,
        True,
        False,
    ]
    for at in range(steps.index("scored") + 1, len(steps) + 1):
        trial = bench.trial()
        base = trial.active()
        assert trial.backfill(OLD, at=at, into=into) == -signal.SIGKILL, trial.steps()
        seen = trial.answers()
        if into is Into.NEW:
            assert seen == (before if trial.active() == base else after), steps[at - 1]
        assert all(one in pair for one, *pair in zip(seen, before, after, strict=True)), steps[at - 1]
        assert trial.backfill(OLD, into=into) == 0, (at, steps[at - 1])
        assert trial.answers() == after, (at, steps[at - 1])
        meta = trial.active()
        assert (meta.published, meta.scored, meta.rejected, meta.buckets, meta.unfinished) == (8, 8, 0, 1, None)
        assert (meta.histograms, len(meta.subsets)) == (expected.histograms, 1)
        assert (meta.snapshot == base.snapshot) == (into is Into.ACTIVE)
        with trial.store() as store:
            states = [row.state for row in store.catalogue.snapshots()]
            assert store.writer.count(meta) == 8
        assert states == [SnapshotState.READY] * (2 if into is Into.NEW else 1)
