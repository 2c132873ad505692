"""What every store promises about the pointer, its lease and what is removed, on every store."""

import pytest
from support.servers import wait_until
from support.snapshots import load, promote, publish_batch, rollback, snapshot_meta
from support.stores import Backend

from shared.errors import (
    BundleConflict,
    Fenced,
    LeaseHeld,
    SnapshotError,
    SnapshotHeld,
    SnapshotNotFound,
    SnapshotNotReady,
)
from shared.snapshot import Absent, Active, SnapshotState, SubsetRun
from shared.store.history import HISTORY_LENGTH

ONE = {"a": 1.0}


def test_a_version_belongs_to_one_bundle(backend: Backend) -> None:
    """A2: new weights under the same name and version are refused; the same ones are not."""
    backend.store.catalogue.claim("1", "digest one")
    backend.store.catalogue.claim("1", "digest one")
    backend.store.catalogue.claim("2", "digest two")
    with pytest.raises(BundleConflict, match="model churn, version 1"):
        backend.store.catalogue.claim("1", "digest two")


def test_nothing_is_active_at_first(backend: Backend) -> None:
    """A store without snapshots has no pointer, which is no error."""
    assert backend.ask(lambda store: store.reader.active()) is None
    assert backend.store.catalogue.active() is None
    assert backend.store.catalogue.snapshots() == []
    assert backend.store.catalogue.history() == []


def test_promotion_moves_the_pointer(backend: Backend) -> None:
    """A4: after a promotion, both sides name the same snapshot with its metadata."""
    meta = load(backend.store, snapshot_meta(), ONE)
    flip = promote(backend.store, meta.snapshot)
    assert backend.ask(lambda store: store.reader.active()) == Active(meta=meta, epoch=flip.epoch)
    assert backend.store.catalogue.active() == Active(meta=meta, epoch=flip.epoch)
    assert (flip.snapshot, flip.by, flip.action, flip.forced) == (meta.snapshot, "test", "promote", False)


def test_a_half_written_snapshot_is_never_promoted(backend: Backend) -> None:
    """Not even by force: it is not whole."""
    backend.store.writer.begin(snapshot_meta())
    lease = backend.store.leases.acquire("test", 30)
    with pytest.raises(SnapshotNotReady, match="1-A: it is writing"):
        backend.store.control.promote("1-A", lease, by="test", forced=True)
    assert backend.store.catalogue.active() is None


def test_an_unknown_snapshot_is_not_promoted(backend: Backend) -> None:
    """The error names it."""
    lease = backend.store.leases.acquire("test", 30)
    with pytest.raises(SnapshotNotFound, match="9-Z"):
        backend.store.control.promote("9-Z", lease, by="test")


def test_a_held_snapshot_needs_force_and_is_recorded(backend: Backend) -> None:
    """A gate's verdict is overruled only on order; the history keeps that."""
    load(backend.store, snapshot_meta(), ONE)
    backend.store.control.mark("1-A", SnapshotState.HELD)
    lease = backend.store.leases.acquire("test", 30)
    with pytest.raises(SnapshotHeld, match="1-A"):
        backend.store.control.promote("1-A", lease, by="test")
    backend.store.control.promote("1-A", lease, by="a person", forced=True)
    assert [(flip.by, flip.forced) for flip in backend.store.catalogue.history()] == [("a person", True)]
    assert [(row.state, row.active) for row in backend.store.catalogue.snapshots()] == [(SnapshotState.READY, True)]


def test_snapshots_are_listed_newest_first(backend: Backend) -> None:
    """Both sides list all that are resident, with their states, and which one is active."""
    load(backend.store, snapshot_meta("1-A", scored_at=100), ONE)
    load(backend.store, snapshot_meta("2-B", scored_at=200), ONE)
    backend.store.writer.begin(snapshot_meta("2-C", scored_at=300))
    promote(backend.store, "2-B")
    listed = backend.store.catalogue.snapshots()
    assert [(row.meta.snapshot, row.state, row.active) for row in listed] == [
        ("2-C", SnapshotState.WRITING, False),
        ("2-B", SnapshotState.READY, True),
        ("1-A", SnapshotState.READY, False),
    ]
    assert backend.ask(lambda store: store.reader.snapshots()) == listed


def test_metadata_can_be_written_anew(backend: Backend) -> None:
    """What a reader polls is the new text at once."""
    meta = load(backend.store, snapshot_meta(), ONE)
    promote(backend.store, meta.snapshot)
    changed = meta.model_copy(update={"rejected": 5})
    backend.store.control.update(changed)
    active = backend.ask(lambda store: store.reader.active())
    assert active is not None
    assert active.meta == changed


def test_the_active_metadata_is_amended_under_the_lease(backend: Backend) -> None:
    """Who holds the lease writes it anew, and readers poll it at once."""
    meta = load(backend.store, snapshot_meta(), ONE)
    promote(backend.store, meta.snapshot)
    lease = backend.store.leases.acquire("test", 30)
    run = SubsetRun(run="1-B", run_key="k", base="1-A", into="active", at=1, by="test", entities=2, whole=False)
    changed = meta.model_copy(update={"published": 5, "subsets": (run,)})
    backend.store.control.amend(changed, lease)
    active = backend.ask(lambda store: store.reader.active())
    assert active is not None
    assert active.meta == changed
    assert active.meta.unfinished == run


def test_a_lost_lease_amends_nothing(backend: Backend) -> None:
    """A rollback that took the lease over, or a lapse, is noticed before the metadata changes."""
    meta = load(backend.store, snapshot_meta(), ONE)
    promote(backend.store, meta.snapshot)
    lease = backend.store.leases.acquire("test", 30)
    backend.store.leases.acquire("somebody else", 30, instead_of="test")
    with pytest.raises(Fenced):
        backend.store.control.amend(meta.model_copy(update={"published": 5}), lease)
    active = backend.store.catalogue.active()
    assert active is not None
    assert active.meta == meta


def test_only_the_active_snapshot_is_amended(backend: Backend) -> None:
    """One that is not active any more stays as it is, and the error says why."""
    load(backend.store, snapshot_meta("1-A"), ONE)
    meta = load(backend.store, snapshot_meta("1-B"), ONE)
    promote(backend.store, "1-A")
    lease = backend.store.leases.acquire("test", 30)
    with pytest.raises(SnapshotNotFound, match="1-B: it is not the active one any more"):
        backend.store.control.amend(meta.model_copy(update={"published": 5}), lease)
    assert meta in [row.meta for row in backend.store.catalogue.snapshots()]


def test_only_known_snapshots_can_be_changed(backend: Backend) -> None:
    """A mark or new metadata does not make a snapshot."""
    with pytest.raises(SnapshotNotFound):
        backend.store.control.mark("9-Z", SnapshotState.READY)
    with pytest.raises(SnapshotNotFound):
        backend.store.control.update(snapshot_meta("9-Z"))
    assert backend.store.catalogue.snapshots() == []


def test_rollback_goes_back_step_by_step(backend: Backend) -> None:
    """A second rollback goes one further back, and not forward again; then there is nothing left."""
    for snapshot in ("1-A", "1-B", "1-C"):
        load(backend.store, snapshot_meta(snapshot), ONE)
        promote(backend.store, snapshot)
    assert rollback(backend.store).snapshot == "1-B"
    assert rollback(backend.store).snapshot == "1-A"
    with pytest.raises(SnapshotNotFound, match="no earlier snapshot"):
        rollback(backend.store)
    active = backend.store.catalogue.active()
    assert active is not None
    assert active.meta.snapshot == "1-A"
    assert [flip.action for flip in backend.store.catalogue.history()][:2] == ["rollback", "rollback"]


def test_rollback_skips_what_is_gone(backend: Backend) -> None:
    """A snapshot that was retired, or is being written again, is not gone back to."""
    for snapshot in ("1-A", "1-B", "1-C", "1-D"):
        load(backend.store, snapshot_meta(snapshot), ONE)
        promote(backend.store, snapshot)
    backend.store.control.retire("1-C")
    backend.store.writer.begin(snapshot_meta("1-B"))
    assert rollback(backend.store).snapshot == "1-A"


def test_history_is_bounded_and_newest_first(backend: Backend) -> None:
    """The store does not grow with every flip."""
    load(backend.store, snapshot_meta(), ONE)
    lease = backend.store.leases.acquire("test", 30)
    for number in range(HISTORY_LENGTH + 5):
        backend.store.control.promote("1-A", lease, by=str(number))
    history = backend.store.catalogue.history()
    assert len(history) == HISTORY_LENGTH
    assert history[0].by == str(HISTORY_LENGTH + 4)


def test_one_publisher_at_a_time(backend: Backend) -> None:
    """The second is told who holds the lease; after its release it gets the next epoch."""
    first = backend.store.leases.acquire("host a, run 1", 30)
    with pytest.raises(LeaseHeld, match="host a, run 1"):
        backend.store.leases.acquire("host b, run 2", 30)
    backend.store.leases.renew(first)
    backend.store.leases.release(first)
    second = backend.store.leases.acquire("host b, run 2", 30)
    assert second.epoch == first.epoch + 1


def test_who_holds_the_lease_can_be_asked(backend: Backend) -> None:
    """Its holder while it is held, and None before and after."""
    assert backend.store.leases.holder() is None
    lease = backend.store.leases.acquire("ann@host 7, run 1", 30)
    assert backend.store.leases.holder() == "ann@host 7, run 1"
    backend.store.leases.release(lease)
    assert backend.store.leases.holder() is None


def test_a_holder_that_is_known_to_be_dead_is_replaced(backend: Backend) -> None:
    """Only the one that is named, and it is fenced: if it lives after all, it cannot flip the pointer."""
    load(backend.store, snapshot_meta(), ONE)
    first = backend.store.leases.acquire("host a, run 1", 30)
    with pytest.raises(LeaseHeld, match="host a, run 1"):
        backend.store.leases.acquire("host b, run 2", 30, instead_of="host a, run")
    second = backend.store.leases.acquire("host b, run 2", 30, instead_of="host a, run 1")
    assert second.epoch == first.epoch + 1
    with pytest.raises(Fenced):
        backend.store.control.promote("1-A", first, by="host a")
    with pytest.raises(LeaseHeld, match="host b, run 2"):
        backend.store.leases.acquire("host c, run 3", 30, instead_of="host a, run 1")


def test_releasing_a_lease_that_is_not_ours_changes_nothing(backend: Backend) -> None:
    """Whoever lost its lease cannot take the next holder's away."""
    first = backend.store.leases.acquire("first", 30)
    backend.store.leases.release(first)
    backend.store.leases.acquire("second", 30)
    backend.store.leases.release(first)
    with pytest.raises(LeaseHeld, match="second"):
        backend.store.leases.acquire("third", 30)


def test_a_publisher_that_slept_is_fenced(backend: Backend) -> None:
    """J8: whoever lost its lease can neither renew it nor flip the pointer."""
    load(backend.store, snapshot_meta(), ONE)
    slept = backend.store.leases.acquire("slept", 0.05)
    held = []

    def _taken_over() -> bool:
        try:
            held.append(backend.store.leases.acquire("awake", 30))
        except LeaseHeld:
            return False
        return True

    wait_until(_taken_over)
    with pytest.raises(Fenced, match="slept"):
        backend.store.leases.renew(slept)
    with pytest.raises(Fenced, match="slept"):
        backend.store.control.promote("1-A", slept, by="slept")
    assert backend.store.catalogue.active() is None
    assert backend.store.control.promote("1-A", held[0], by="awake").epoch == slept.epoch + 1


def test_a_retired_snapshot_leaves_nothing(backend: Backend) -> None:
    """A6: its keys are removed and counted, and it is listed no more."""
    meta = load(backend.store, snapshot_meta(entities=200), {f"C{n}": 1.0 for n in range(200)})
    assert backend.store.control.retire(meta.snapshot) == meta.buckets
    assert backend.store.catalogue.snapshots() == []
    assert backend.store.writer.count(meta) == 0
    with pytest.raises(SnapshotNotFound, match="1-A"):
        backend.store.control.retire(meta.snapshot)


def test_the_active_snapshot_is_never_retired(backend: Backend) -> None:
    """Not even by force."""
    meta = load(backend.store, snapshot_meta(), ONE)
    promote(backend.store, meta.snapshot)
    with pytest.raises(SnapshotError, match="1-A: it is active"):
        backend.store.control.retire(meta.snapshot, force=True)
    assert backend.store.writer.count(meta) == 1


@pytest.mark.parametrize(("state", "words"), [("held", "held for review"), ("writing", "half-written")])
def test_held_and_half_written_need_an_order(backend: Backend, state: str, words: str) -> None:
    """They are removed only when told explicitly."""
    meta = load(backend.store, snapshot_meta(), ONE)
    backend.store.control.mark(meta.snapshot, SnapshotState(state))
    with pytest.raises(SnapshotError, match=words):
        backend.store.control.retire(meta.snapshot)
    assert backend.store.writer.count(meta) == 1
    assert backend.store.control.retire(meta.snapshot, force=True) == meta.buckets


def test_a_snapshot_that_is_being_retired_is_not_promoted(backend: Backend) -> None:
    """A removal that crashed can only be finished, or the run published again."""
    meta = load(backend.store, snapshot_meta(), ONE)
    backend.store.control.mark(meta.snapshot, SnapshotState.RETIRING)
    lease = backend.store.leases.acquire("test", 30)
    with pytest.raises(SnapshotNotReady, match="retiring"):
        backend.store.control.promote(meta.snapshot, lease, by="test", forced=True)
    assert backend.store.control.retire(meta.snapshot) == meta.buckets


def test_other_snapshots_stay_when_one_is_retired(backend: Backend) -> None:
    """Removing one touches no other."""
    old = load(backend.store, snapshot_meta("1-A"), ONE)
    new = load(backend.store, snapshot_meta("1-B"), {"a": 2.0})
    backend.store.control.retire(old.snapshot)
    backend.store.writer.fill(new, [publish_batch(new, {"b": 3.0})])
    assert backend.store.writer.count(new) == 2
    assert backend.store.writer.read(new, ["c"]) == [Absent()]
