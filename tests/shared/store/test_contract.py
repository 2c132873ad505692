"""What every store promises about the scores of a snapshot, on every store."""

import math
from collections.abc import Iterator

import pytest
from support.snapshots import SCORED_AT, load, promote, publish_batch, snapshot_meta
from support.stores import Backend

from shared.codes import Code
from shared.errors import SnapshotError, StoreCorrupt
from shared.snapshot import Absent, Found, KnownRejected, Lost, SnapshotState
from shared.store.interfaces import OnlineScore, PublishBatch

THREE = {"ann": 0.25, "bob": 0.5, "007": 0.1}


def test_a_loaded_entity_reads_back_with_its_float32(backend: Backend) -> None:
    """What comes out of the store is the float32 that went in, bit for bit."""
    meta = load(backend.store, snapshot_meta(), THREE)
    found = backend.ask(lambda store: store.reader.lookup(meta, ["bob", "007"]))
    as_float32 = 0.10000000149011612
    assert found == [
        Found(scores=(0.5,), scored_at=SCORED_AT, online=False),
        Found(scores=(as_float32,), scored_at=SCORED_AT, online=False),
    ]


def test_answers_come_in_the_order_of_the_ids(backend: Backend) -> None:
    """Each id has its own answer at its own place, also when it is asked twice."""
    scores = {f"C{number:04}": float(number) for number in range(300)}
    meta = load(backend.store, snapshot_meta(entities=300), scores)
    asked = [f"C{number:04}" for number in (299, 0, 7, 7, 123)]
    found = backend.ask(lambda store: store.reader.lookup(meta, asked))
    assert [answer.scores for answer in found if isinstance(answer, Found)] == [(299,), (0,), (7,), (7,), (123,)]


def test_reader_and_writer_read_the_same(backend: Backend) -> None:
    """The batch job's read-back and the service's look-up are one thing."""
    meta = load(backend.store, snapshot_meta(), THREE)
    ids = ["ann", "nobody", "007"]
    assert backend.store.writer.read(meta, ids) == backend.ask(lambda store: store.reader.lookup(meta, ids))


def test_no_ids_no_answers(backend: Backend) -> None:
    """A look-up of nothing answers nothing."""
    meta = load(backend.store, snapshot_meta(), THREE)
    assert backend.ask(lambda store: store.reader.lookup(meta, [])) == []


def test_an_entity_that_is_not_there_is_absent(backend: Backend) -> None:
    """A5: the snapshot without B says so, whatever the one before held."""
    yesterday = load(backend.store, snapshot_meta("1-A"), {"a": 1.0, "b": 2.0})
    today = load(backend.store, snapshot_meta("1-B"), {"a": 3.0})
    promote(backend.store, today.snapshot)
    [found] = backend.ask(lambda store: store.reader.lookup(today, ["b"]))
    assert found == Absent()
    assert isinstance(backend.store.writer.read(yesterday, ["b"])[0], Found)


def test_ids_are_exact(backend: Backend) -> None:
    """Blanks, case, leading zeros and characters of the key syntax make other entities."""
    ids = ["7", "007", " 7", "a", "A", "a:b", "{a}", "*", "a/b", "null", "NaN", "+1", "ä", "\u0061\u0308", "x" * 256]
    scores = {entity_id: float(position) for position, entity_id in enumerate(ids)}
    meta = load(backend.store, snapshot_meta(entities=len(ids)), scores)
    found = backend.ask(lambda store: store.reader.lookup(meta, ids))
    assert [answer.scores[0] for answer in found if isinstance(answer, Found)] == list(scores.values())


def test_a_rejected_entity_is_known(backend: Backend) -> None:
    """Known but rejected is not the same as never seen; it carries the code and the field's name."""
    meta = snapshot_meta(entities=2)
    backend.store.writer.begin(meta)
    rejected = {"bad": (Code.NOT_A_NUMBER, 2), "worse": (Code.NON_FINITE_SCORE, None)}
    backend.store.writer.fill(meta, [publish_batch(meta, {}, rejected)])
    assert backend.ask(lambda store: store.reader.lookup(meta, ["bad", "worse"])) == [
        KnownRejected(code=Code.NOT_A_NUMBER, field="basket", scored_at=SCORED_AT),
        KnownRejected(code=Code.NON_FINITE_SCORE, field=None, scored_at=SCORED_AT),
    ]


def test_count_is_the_number_of_entities(backend: Backend) -> None:
    """The count leaves the markers out, and rejected entities in."""
    meta = snapshot_meta(entities=200)
    backend.store.writer.begin(meta)
    assert backend.store.writer.count(meta) == 0
    batch = publish_batch(meta, {f"C{n}": 0.5 for n in range(190)}, {f"R{n}": (Code.MISSING, 0) for n in range(10)})
    assert backend.store.writer.fill(meta, [batch]) == 200
    assert backend.store.writer.count(meta) == 200


def test_writing_again_changes_nothing(backend: Backend) -> None:
    """Publishing again over a half-written snapshot is safe."""
    scores = {f"C{number}": float(number) for number in range(200)}
    meta = snapshot_meta(entities=200)
    backend.store.writer.begin(meta)
    backend.store.writer.fill(meta, [publish_batch(meta, dict(list(scores.items())[:70]))])
    load(backend.store, meta, scores)
    assert backend.store.writer.count(meta) == 200
    found = backend.store.writer.read(meta, list(scores))
    assert [answer.scores[0] for answer in found if isinstance(answer, Found)] == list(scores.values())


def test_an_empty_snapshot_exists(backend: Backend) -> None:
    """A snapshot of no entities says absent, and not lost."""
    meta = load(backend.store, snapshot_meta(entities=0), {})
    assert backend.store.writer.count(meta) == 0
    assert backend.ask(lambda store: store.reader.lookup(meta, ["a"])) == [Absent()]


def test_a_bucket_without_entities_exists(backend: Backend) -> None:
    """Every bucket is made, so that an id of an empty one is absent, and not lost."""
    meta = load(backend.store, snapshot_meta(entities=1000), {"only": 1.0})
    found = backend.ask(lambda store: store.reader.lookup(meta, [f"C{number}" for number in range(200)]))
    assert set(found) == {Absent()}


def test_what_is_not_filled_yet_is_lost_and_not_absent(backend: Backend) -> None:
    """A bucket is there once its entities are: a half-written snapshot is never taken for one without them."""
    meta = snapshot_meta()
    backend.store.writer.begin(meta)
    assert backend.ask(lambda store: store.reader.lookup(meta, ["a"])) == [Lost("bucket")]


def test_a_snapshot_is_filled_by_all_of_its_batches(backend: Backend) -> None:
    """They are taken one after the other, and what makes them may fail: that is raised as it is."""
    meta = snapshot_meta(entities=400)
    backend.store.writer.begin(meta)
    batches = [publish_batch(meta, {f"C{row}": 0.5 for row in range(first, first + 100)}) for first in (0, 100, 200)]
    assert backend.store.writer.fill(meta, batches) == 300
    assert backend.store.writer.count(meta) == 300
    with pytest.raises(OSError, match="full"):
        backend.store.writer.fill(meta, _failing(batches))
    assert backend.store.writer.count(meta) == 300


def _failing(batches: list[PublishBatch]) -> Iterator[PublishBatch]:
    yield from batches
    raise OSError("full")


def test_a_snapshot_that_was_never_begun_is_lost(backend: Backend) -> None:
    """Where no bucket is, the store cannot tell."""
    assert backend.ask(lambda store: store.reader.lookup(snapshot_meta(), ["a"])) == [Lost("bucket")]


def test_another_run_does_not_get_the_snapshot(backend: Backend) -> None:
    """Two runs never mix in one snapshot; the same run may begin again."""
    backend.store.writer.begin(snapshot_meta(run_key="one"))
    backend.store.writer.begin(snapshot_meta(run_key="one"))
    with pytest.raises(SnapshotError, match="another run has it"):
        backend.store.writer.begin(snapshot_meta(run_key="two"))


def test_loading_the_active_snapshot_again_keeps_it_ready(backend: Backend) -> None:
    """A snapshot that is being served is not half-written because its run is published once more."""
    meta = load(backend.store, snapshot_meta(), THREE)
    promote(backend.store, meta.snapshot)
    backend.store.writer.begin(meta)
    assert [row.state for row in backend.store.catalogue.snapshots()] == [SnapshotState.READY]


def test_a_batch_in_slabs_and_split_buckets_is_whole(backend: Backend) -> None:
    """More entities than fit into one command or one slab all arrive."""
    scores = {f"customer-{number:06}": float(number % 97) for number in range(20_000)}
    meta = load(backend.store, snapshot_meta(entities=4_000, published=20_000), scores)  # 240 in each bucket
    assert backend.store.writer.count(meta) == 20_000
    sample = list(scores)[::531]
    found = backend.store.writer.read(meta, sample)
    assert [answer.scores[0] for answer in found if isinstance(answer, Found)] == [scores[name] for name in sample]


def test_an_online_score_is_written_back_with_its_flag(backend: Backend) -> None:
    """The unseen entity is there afterwards, marked as scored online."""
    meta = load(backend.store, snapshot_meta(), THREE)
    assert backend.ask(lambda store: store.online.write_back(meta, [OnlineScore("new", [0.75], SCORED_AT + 9)])) == [
        True
    ]
    [found] = backend.ask(lambda store: store.reader.lookup(meta, ["new"]))
    assert found == Found(scores=(0.75,), scored_at=SCORED_AT + 9, online=True)


def test_a_retired_snapshot_is_not_brought_back_to_life(backend: Backend) -> None:
    """A write-back with an old pointer writes nothing."""
    meta = load(backend.store, snapshot_meta(), THREE)
    backend.store.control.retire(meta.snapshot)
    score = OnlineScore("new", [0.75], SCORED_AT)
    assert backend.ask(lambda store: store.online.write_back(meta, [score])) == [False]
    assert backend.store.writer.count(meta) == 0


def test_ping_returns(backend: Backend) -> None:
    """A store that works answers."""
    assert backend.ask(lambda store: store.reader.ping()) is None


def test_a_score_that_is_not_finite_is_never_read(backend: Backend) -> None:
    """C4: should NaN have been stored, it is lost, and not an answer."""
    meta = load(backend.store, snapshot_meta(), {"a": math.nan, "b": 1.0})
    found = backend.ask(lambda store: store.reader.lookup(meta, ["a", "b"]))
    assert found[0] == Lost("corrupt")
    assert isinstance(found[1], Found)


def test_buckets_read_back_whole(backend: Backend) -> None:
    """All that lies in some buckets comes back once, as the bytes that were written, sorted by bucket."""
    meta = snapshot_meta(entities=200)
    backend.store.writer.begin(meta)
    written = publish_batch(meta, {f"C{n}": n / 8 for n in range(190)}, {f"ü{n}": (Code.MISSING, 0) for n in range(10)})
    backend.store.writer.fill(meta, [written])
    read = [backend.store.writer.read_buckets(meta, part) for part in (range(2), range(2, meta.buckets))]
    assert [sorted(set(batch.buckets.tolist())) for batch in read] == [[0, 1], list(range(2, meta.buckets))]
    found = {pair for batch in read for pair in zip(batch.ids.to_pylist(), batch.values.to_pylist(), strict=True)}
    assert found == set(zip(written.ids.to_pylist(), written.values.to_pylist(), strict=True))
    assert sum(map(len, read)) == 200


def test_a_bucket_that_is_gone_is_not_read_as_empty(backend: Backend) -> None:
    """A copy of it would drop its entities; an empty one is whole."""
    meta = load(backend.store, snapshot_meta(entities=0), {})
    assert len(backend.store.writer.read_buckets(meta, range(meta.buckets))) == 0
    with pytest.raises(StoreCorrupt, match="1-A: the store lost or changed a part of it"):
        backend.store.writer.read_buckets(meta, range(meta.buckets + 1))


def test_values_are_replaced_in_place(backend: Backend) -> None:
    """What was there is replaced, what was not is added, the rest stays; the same again changes nothing."""
    meta = load(backend.store, snapshot_meta(entities=200), {f"C{n}": 0.5 for n in range(200)})
    later = meta.model_copy(update={"scored_at": SCORED_AT + 60})
    batch = publish_batch(later, {"C7": 0.25, "new": 0.75}, {"C8": (Code.MISSING, 0)})
    for _ in range(2):
        assert backend.store.writer.replace(meta, batch) == 3
        assert backend.ask(lambda store: store.reader.lookup(meta, ["C7", "new", "C8", "C9"])) == [
            Found(scores=(0.25,), scored_at=SCORED_AT + 60, online=False),
            Found(scores=(0.75,), scored_at=SCORED_AT + 60, online=False),
            KnownRejected(code=Code.MISSING, field="visits", scored_at=SCORED_AT + 60),
            Found(scores=(0.5,), scored_at=SCORED_AT, online=False),
        ]
        assert backend.store.writer.count(meta) == 201


def test_nothing_is_replaced_in_a_bucket_that_is_gone(backend: Backend) -> None:
    """A retired snapshot's buckets do not come back to life."""
    meta = load(backend.store, snapshot_meta(), THREE)
    backend.store.control.retire(meta.snapshot)
    assert backend.store.writer.replace(meta, publish_batch(meta, THREE)) == 0
    assert backend.store.writer.count(meta) == 0
    assert backend.store.writer.read(meta, ["ann"]) == [Lost("bucket")]
