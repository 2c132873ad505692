"""A part of a table joins the active snapshot: into a copy of it, or in place."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.joins import FIVE, PART, A, B, Bench, C, D

from batch_job import copying, union
from batch_job.into import Into
from batch_job.job import Means
from batch_job.manifest import RunState, read_manifest
from shared.bundle import Bundle
from shared.errors import (
    MixedVersions,
    RunError,
    SnapshotNotFound,
)
from shared.scorer import open_scorer
from shared.snapshot import Absent, Found

Write = Callable[..., Path]
JOINS = pytest.mark.parametrize("into", [Into.NEW, Into.ACTIVE])


@pytest.fixture
def bench(bundle: Bundle, means: Means, write: Write, tmp_path: Path) -> Bench:
    return Bench(bundle, means, write, tmp_path)


@JOINS
def test_the_part_is_replaced_and_the_rest_stays(bench: Bench, into: Into) -> None:
    """Replaced, added, mended and now rejected entities are the run's; the others keep value and moment of scoring."""
    first = bench.whole(FIVE)
    second = bench.part(PART, into)
    assert bench.scores("a", "b", "c", "d", "bad", "new", "x") == [A, C, "missing", D, D, A, None]
    moments = [found.scored_at for found in bench.look_up("a", "b", "c", "new") if not isinstance(found, Absent)]  # type: ignore[union-attr]
    assert moments == [first.started_at, second.started_at, second.started_at, second.started_at]


@JOINS
def test_the_metadata_is_that_of_the_union(bench: Bench, into: Into) -> None:
    """Counts and distribution are those of a run over all entities as they are now; both times are the oldest."""
    first = bench.whole(FIVE)
    second = bench.part({**PART, None: A}, into)
    meta = bench.active
    assert (meta.published, meta.scored, meta.rejected, meta.input_rows, meta.duplicate) == (6, 5, 2, 7, 0)
    assert (meta.scored_at, meta.data_as_of) == (first.started_at, 1001)
    assert bench.store.writer.count(meta) == 6
    alone = bench.part({"a": A, "b": C, "c": None, "d": D, "bad": D, "new": A}, Into.ALONE)
    edges = {column: one.edges for column, one in zip(meta.columns, meta.histograms, strict=True)}
    expected = [sum(score < edge for score in (A, C, D, D, A)) for edge in edges["buys"]]
    assert np.cumsum(meta.histograms[0].counts).tolist() == [*expected, 5]
    assert bench.active.snapshot == alone.snapshot
    [run] = meta.subsets
    assert (run.run_key, run.into, run.base, run.at, run.entities, run.whole) == (
        second.run_key,
        into.value,
        first.snapshot,
        second.started_at,
        4,
        True,
    )


def test_a_copy_leaves_the_base_as_it_was(bench: Bench) -> None:
    """One flip makes the copy active, and a rollback leads back to every old value."""
    first = bench.whole(FIVE)
    base = bench.active
    second = bench.part(PART, Into.NEW)
    assert (second.state, second.joined, second.base) == (RunState.PROMOTED, bench.active.snapshot, first.snapshot)
    assert bench.active.snapshot != first.snapshot
    assert bench.scores(*map(str, FIVE), "new", meta=base) == [A, B, C, D, "missing", None]
    lease = bench.store.leases.acquire("test", 30)
    bench.store.control.rollback(lease, by="test")
    assert bench.active == base
    assert bench.scores("b") == [B]


def test_an_update_in_place_moves_no_pointer(bench: Bench) -> None:
    """The snapshot stays the same one, and its buckets as many."""
    first = bench.whole(FIVE)
    base = bench.active
    second = bench.part(PART, Into.ACTIVE)
    assert (second.state, second.joined) == (RunState.UPDATED, first.snapshot)
    assert len(bench.store.catalogue.history()) == 1
    assert (bench.active.snapshot, bench.active.buckets) == (base.snapshot, base.buckets)
    assert list(bench.states()) == [first.snapshot]


@JOINS
def test_what_is_done_is_done(bench: Bench, into: Into) -> None:
    """The same call again changes nothing, also once a newer whole snapshot is active."""
    bench.whole(FIVE)
    out = bench.score(PART)
    done = bench.publish(out, into)
    before = bench.store.catalogue.snapshots()
    assert bench.publish(out, into) == done
    assert bench.store.catalogue.snapshots() == before
    newer = bench.whole(FIVE)
    bench.whole(FIVE)
    lease = bench.store.leases.acquire("test", 30)
    bench.store.control.rollback(lease, by="test")
    bench.store.leases.release(lease)
    assert bench.publish(out, into) == done
    assert (bench.active.snapshot, bench.scores("b")) == (newer.snapshot, [B])


def test_a_copy_that_was_retired_does_not_come_back(bench: Bench) -> None:
    """Made again of the same base, it has a new name: readers may still know the old one, and would see half of it."""
    first = bench.whole(FIVE)
    out = bench.score(PART)
    copy = bench.publish(out, Into.NEW)
    lease = bench.store.leases.acquire("test", 30)
    bench.store.control.rollback(lease, by="test")
    bench.store.leases.release(lease)
    bench.store.control.retire(copy.snapshot)
    again = bench.publish(out, Into.NEW)
    assert again.base == first.snapshot
    assert again.snapshot == bench.active.snapshot != copy.snapshot


def test_buckets_are_sized_for_the_union(bench: Bench) -> None:
    """The copy has the buckets that a whole snapshot of its entities would have, however many slabs it took."""
    bench.whole({f"C{n}": A for n in range(100)})
    bench.part({f"C{n}": B for n in range(50, 200)}, Into.NEW)
    meta = bench.active
    assert (meta.published, meta.buckets) == (200, 5)
    assert bench.store.writer.count(meta) == 200
    assert bench.scores("C0", "C49", "C50", "C199") == [A, A, B, B]


@pytest.mark.parametrize("memory_rows", [1, 10**6])
def test_a_copy_is_read_and_written_in_bounded_slabs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, memory_rows: int
) -> None:
    """However little memory the spool has, every entity goes out once, sorted by bucket within each pass."""
    monkeypatch.setattr(copying, "BUCKETS_READ", 2)
    monkeypatch.setattr(copying, "PASS_ROWS", 100)
    monkeypatch.setattr("batch_job.content.SLAB_ROWS", 64)
    monkeypatch.setattr(union, "_LOOKUP_ROWS", 7)
    bench.whole({f"C{n}": A for n in range(300)})
    base, out = bench.active, bench.score({f"C{n}": B for n in range(250, 400)})
    manifest = read_manifest(out)
    assert manifest is not None
    content = copying.Content(out, manifest)
    meta = base.model_copy(update={"snapshot": "1-Z", "buckets": 9, "published": 400})
    copy = copying.Copy(base, meta, content, bench.store.writer, lambda: None, memory_rows=memory_rows)
    batches = list(copy.batches())
    assert max(map(len, batches)) <= 64
    ids = [entity_id for batch in batches for entity_id in batch.ids.to_pylist()]
    assert sorted(ids) == sorted(f"C{n}" for n in range(400))
    buckets = [bucket for batch in batches for bucket in batch.buckets.tolist()]
    assert buckets == sorted(buckets)
    assert (copy.entities, len(copy.samples) >= 200) == (400, True)
    assert not (out / "spool-copy").exists()


@JOINS
def test_the_services_own_scores_are_carried_and_not_counted(bench: Bench, into: Into) -> None:
    """What the service added is there as it was, flag and all; the batch's value takes its place where there is one."""
    bench.whole(FIVE)
    bench.online("seen", B)
    bench.online("too", B)
    bench.part({"too": A, "new": A}, into)
    assert bench.scores("seen", "too", "new") == [B, A, A]
    seen, too = bench.look_up("seen", "too")
    assert isinstance(seen, Found)
    assert isinstance(too, Found)
    assert (seen.online, too.online) == (True, False)
    assert (bench.active.published, bench.active.scored) == (6, 5)
    assert bench.store.writer.count(bench.active) == 8


@JOINS
def test_a_part_joins_a_part(bench: Bench, into: Into) -> None:
    """Several runs over parts, one after the other: the last one wins, and the metadata names them in order."""
    bench.whole(FIVE)
    keys = [bench.part({"a": score, name: B}, into).run_key for score, name in ((B, "x"), (C, "y"), (D, "z"))]
    assert bench.scores("a", "x", "y", "z", "d") == [D, B, B, B, D]
    assert [run.run_key for run in bench.active.subsets] == keys
    assert (bench.active.published, bench.active.scored) == (8, 7)


def test_many_parts_do_not_grow_the_metadata(bench: Bench) -> None:
    """The names of the last runs are kept, and no more."""
    bench.whole(FIVE)
    for _ in range(4):
        bench.part({"a": B}, Into.ACTIVE)
    assert len(bench.active.subsets) == 4
    bench.means = replace(bench.means)
    meta = bench.active.model_copy(update={"subsets": bench.active.subsets * 5})
    bench.store.control.update(meta)
    bench.part({"a": B}, Into.NEW)
    assert len(bench.active.subsets) == union.SUBSETS_KEPT


@JOINS
def test_another_version_is_never_mixed_in(bench: Bench, other_bundle: Bundle, into: Into) -> None:
    """The active snapshot must be of the run's version; the error names both and the next step."""
    bench.whole(FIVE)
    bench.bundle, scorer = other_bundle, open_scorer(other_bundle, device="cpu")
    bench.means = replace(bench.means, open_scores=lambda: scorer)
    before = bench.active
    with pytest.raises(
        MixedVersions, match=r"is of purchase 1, and the run is of purchase 2: .*backfill the whole table"
    ):
        bench.part({"a": A}, into)
    assert (bench.active, len(bench.states())) == (before, 1)


@JOINS
@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"bundle_digest": "other"}, "the run's bundle has another digest"),
        ({"golden_digest": "other"}, "the golden rows score to other bits"),
    ],
)
def test_other_bits_are_never_mixed_in(bench: Bench, into: Into, changes: dict[str, str], difference: str) -> None:
    """The same version is not enough: bundle and golden digest must be the same."""
    bench.whole(FIVE)
    bench.store.control.update(bench.active.model_copy(update=changes))
    with pytest.raises(MixedVersions, match=difference):
        bench.part({"a": B}, into)
    assert bench.scores("a") == [A]


@JOINS
def test_without_an_active_snapshot_there_is_nothing_to_join(bench: Bench, into: Into) -> None:
    """The error says what to do first."""
    with pytest.raises(SnapshotNotFound, match=r"no active snapshot that the scores could join; .* --into alone"):
        bench.part({"a": A}, into)


@JOINS
def test_older_scores_do_not_take_the_place_of_newer_ones(bench: Bench, into: Into) -> None:
    """A run that was scored before the active snapshot was, and is published after, is refused."""
    bench.whole(FIVE)
    out = bench.score({"a": B})
    bench.whole(FIVE)
    with pytest.raises(RunError, match=r"its scores are older than those of the active snapshot .*--force scores anew"):
        bench.publish(out, into)
    assert bench.scores("a") == [A]
