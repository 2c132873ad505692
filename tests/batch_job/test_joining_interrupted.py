"""A part that joins the active snapshot is held back, interrupted, overtaken, or finds the store damaged."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.joins import FIVE, PART, A, B, Bench, C, D

from batch_job.into import Into
from batch_job.job import Means
from batch_job.manifest import RunState, read_manifest
from batch_job.nights import Sight, Standing, standing
from shared.bundle import Bundle
from shared.errors import (
    Fenced,
    SnapshotHeld,
    SnapshotNotReady,
    StoreCorrupt,
    StoreDown,
)
from shared.snapshot import SnapshotState

Write = Callable[..., Path]
JOINS = pytest.mark.parametrize("into", [Into.NEW, Into.ACTIVE])


@pytest.fixture
def bench(bundle: Bundle, means: Means, write: Write, tmp_path: Path) -> Bench:
    return Bench(bundle, means, write, tmp_path)


def test_a_copy_is_judged_by_the_gates(bench: Bench) -> None:
    """Held, it can be read by its id, and forced; the same call judges it again without writing."""
    bench.whole({f"C{n}": (B, C, D, A)[n % 4] for n in range(200)})
    base = bench.active
    bench.gates(max_psi=0.1)
    out = bench.score({f"C{n}": A for n in range(150)})
    with pytest.raises(SnapshotHeld, match=r"shift of buys: PSI .*forescore promote 1-\w+ --force"):
        bench.publish(out, Into.NEW)
    held = read_manifest(out)
    assert held is not None
    assert (held.state, bench.active, bench.states()[held.snapshot]) == (RunState.HELD, base, SnapshotState.HELD)
    assert bench.scores("C0", "C199", meta=bench.resident(held.snapshot)) == [A, A]
    bench.gates(max_psi=100)
    assert bench.publish(out, Into.NEW).snapshot == bench.active.snapshot == held.snapshot


def test_an_update_in_place_is_judged_before_it_is_written(bench: Bench) -> None:
    """What would not pass changes nothing; the same run can then be looked at as a copy."""
    bench.whole({f"C{n}": (B, C, D, A)[n % 4] for n in range(200)})
    base = bench.active
    bench.gates(max_psi=0.1)
    out = bench.score({f"C{n}": A for n in range(150)})
    with pytest.raises(SnapshotHeld, match=r"is not updated, nothing was written: shift of buys: .*--into new"):
        bench.publish(out, Into.ACTIVE)
    assert (bench.active, bench.scores("C0")) == (base, [B])
    bench.gates(max_psi=100)
    assert bench.publish(out, Into.NEW).state is RunState.PROMOTED


def test_a_rollback_during_a_copy_wins(bench: Bench) -> None:
    """J7: who rolls back takes the lease; the copy is not promoted, and the same call copies what is active then."""
    first = bench.whole(FIVE)
    bench.whole({**FIVE, "a": D})
    out = bench.score({"b": C})
    bench.at_step("slab written", lambda: _rollback(bench))
    with pytest.raises(Fenced):
        bench.publish(out, Into.NEW)
    assert bench.active.snapshot == first.snapshot
    again = bench.publish(out, Into.NEW)
    assert (again.base, bench.scores("a", "b")) == (first.snapshot, [A, C])
    assert SnapshotState.WRITING not in bench.states().values()


def _rollback(bench: Bench) -> None:
    lease = bench.store.leases.acquire("ops", 30, instead_of=bench.store.leases.holder())
    bench.store.control.rollback(lease, by="ops")
    bench.store.leases.release(lease)


def test_a_rollback_during_an_update_is_told(bench: Bench) -> None:
    """What was written into a snapshot that is not active any more is said, and it stays marked as half updated."""
    first = bench.whole(FIVE)
    second = bench.whole({**FIVE, "a": D})
    out = bench.score({"b": C, "d": A})
    bench.at_step("slab written", lambda: _rollback(bench))
    with pytest.raises(Fenced, match=f"snapshot {second.snapshot}: .* 2 of 2 entities were written into it"):
        bench.publish(out, Into.ACTIVE)
    assert (bench.active.snapshot, bench.scores("b")) == (first.snapshot, [B])
    assert bench.resident(second.snapshot).unfinished is not None
    again = bench.publish(out, Into.ACTIVE)
    assert (again.joined, bench.scores("a", "b", "d")) == (first.snapshot, [A, C, A])


@pytest.mark.parametrize("step", ["surveyed", "update announced", "slab written", "verified", "whole"])
def test_an_update_that_failed_is_ended_by_the_same_call(bench: Bench, step: str) -> None:
    """Whenever the store fails, the counts and the values are right after the same call again."""
    bench.whole(FIVE)
    out = bench.score(PART)

    def fail() -> None:
        bench.memory.failure = StoreDown("gone")
        raise bench.memory.failure

    bench.at_step(step, fail)
    with pytest.raises(StoreDown):
        bench.publish(out, Into.ACTIVE)
    bench.memory.failure = None
    bench.clock.advance(60)  # the lease of the failed call lapses
    assert bench.publish(out, Into.ACTIVE).state is RunState.UPDATED
    meta = bench.active
    assert (meta.published, meta.scored, meta.rejected, meta.unfinished) == (6, 5, 1, None)
    assert len(meta.subsets) == 1
    assert bench.scores("a", "b", "c", "d", "bad", "new") == [A, C, "missing", D, D, A]


@JOINS
def test_a_half_updated_snapshot_is_not_built_upon(bench: Bench, into: Into) -> None:
    """Another run is refused until the first has ended, and the error names that."""
    bench.whole(FIVE)
    out = bench.score({"a": B})
    bench.at_step("update announced", _fail)
    with pytest.raises(StoreDown):
        bench.publish(out, Into.ACTIVE)
    with pytest.raises(SnapshotNotReady, match="was interrupted while it wrote into it; run its command again first"):
        bench.part({"d": B}, into)
    assert bench.publish(out, Into.ACTIVE).state is RunState.UPDATED
    assert bench.part({"d": B}, into).state in {RunState.UPDATED, RunState.PROMOTED}


def _fail() -> None:
    raise StoreDown("gone")


def test_a_whole_snapshot_ends_a_half_update_too(bench: Bench) -> None:
    """It replaces everything, so it need not wait for anything."""
    bench.whole(FIVE)
    out = bench.score({"a": B})
    bench.at_step("update announced", _fail)
    with pytest.raises(StoreDown):
        bench.publish(out, Into.ACTIVE)
    bench.whole(FIVE)
    assert bench.active.unfinished is None


@JOINS
def test_a_base_that_lost_a_part_is_not_joined(bench: Bench, into: Into) -> None:
    """A copy of what is left would drop entities, and a write into what is gone would be lost."""
    bench.whole(FIVE)
    out = bench.score({"a": B})
    before = bench.active
    bench.memory.lose_bucket(before, "a")
    with pytest.raises(StoreCorrupt, match="the store lost or changed a part of it; backfill the whole table"):
        bench.publish(out, into)
    assert bench.active == before


def test_a_base_with_bytes_of_others_is_not_copied(bench: Bench) -> None:
    """What is not a value of ours is found before it is copied."""
    bench.whole(FIVE)
    base = bench.active
    bench.memory.corrupt(base, "d")
    with pytest.raises(StoreCorrupt, match="the store lost or changed a part of it"):
        bench.part({"a": B}, Into.NEW)
    assert bench.active == base


def test_a_bucket_that_is_lost_on_the_way_stops_the_update(bench: Bench) -> None:
    """It is not brought back to life half-filled."""
    bench.whole(FIVE)
    out, meta = bench.score({"a": B}), bench.active
    bench.at_step("update announced", lambda: bench.memory.lose_bucket(meta, "a"))
    with pytest.raises(StoreCorrupt, match="lost or changed a part"):
        bench.publish(out, Into.ACTIVE)
    assert bench.store.writer.count(meta) == 0


def test_a_copy_that_the_store_lost_is_made_again_by_the_same_commands(bench: Bench) -> None:
    """Law 5: the whole run, then the part, each from its parts, without scoring; under new names, for those who know
    the old ones."""
    whole = bench.score(FIVE)
    base = bench.publish(whole).snapshot
    part = bench.score(PART)
    bench.publish(part, Into.NEW)
    before, scores = bench.active, bench.scores("a", "b", "new")
    bench.memory.lose_everything()
    bench.clock.advance(60)
    bench.publish(whole)
    bench.publish(part, Into.NEW)
    named = {"snapshot": before.snapshot, "subsets": before.subsets}
    assert (bench.active.model_copy(update=named), bench.scores("a", "b", "new")) == (before, scores)
    assert not {base, before.snapshot} & set(bench.states())


def test_a_copy_is_no_nights_run(bench: Bench) -> None:
    """The schedule still scores the night: a copy is as old as its base, in its name and in its metadata."""
    bench.whole(FIVE)
    bench.clock.advance(3600)
    due = bench.clock.now()
    bench.clock.advance(60)
    bench.part(PART, Into.NEW)
    sight = Sight(active=bench.active, history=tuple(bench.store.catalogue.history()))
    assert standing(_utc(due), sight) is Standing.OPEN
    assert [row.active for row in bench.store.catalogue.snapshots()] == [True, False]  # the newest first


def _utc(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def test_entities_without_scores_so_far_get_a_distribution(bench: Bench) -> None:
    """A snapshot in which all were rejected has no edges; those of the part are taken."""
    bench.gates(min_coverage=0)
    bench.whole({"a": None, "b": None})
    bench.part({"a": A, "x": B}, Into.ACTIVE)
    [histogram] = bench.active.histograms
    assert sum(histogram.counts) == 2
    assert len(histogram.edges) >= 1


def test_a_half_removed_copy_is_made_anew(bench: Bench) -> None:
    """A copy that was killed while its half-written forerunner was removed ends as if it had not been."""
    bench.whole(FIVE)
    out = bench.score(PART)
    bench.at_step("slab written", _fail)
    with pytest.raises(StoreDown):
        bench.publish(out, Into.NEW)
    manifest = read_manifest(out)
    assert manifest is not None
    bench.store.control.mark(manifest.snapshot, SnapshotState.RETIRING)
    assert bench.publish(out, Into.NEW).snapshot == manifest.snapshot
    assert bench.scores("b", "new") == [C, A]


def test_a_copy_of_a_base_that_changed_is_made_anew(bench: Bench) -> None:
    """Held or ready, it would bring back what was active when it was made."""
    bench.whole(FIVE)
    out = bench.score({"b": C})
    bench.at_step("ready", _fail)
    with pytest.raises(StoreDown):
        bench.publish(out, Into.NEW)
    bench.part({"a": D}, Into.ACTIVE)
    bench.publish(out, Into.NEW)
    assert bench.scores("a", "b") == [D, C]


def test_ids(bench: Bench) -> None:
    """Ids are exact in a copy too."""
    ids: Sequence[str] = ("007", "7", "ü", "a:b", "x" * 256)
    bench.whole(dict.fromkeys(ids, A))
    bench.part({"7": B}, Into.NEW)
    assert bench.scores(*ids) == [A, B, A, A, A]
