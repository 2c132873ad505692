import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.snapshot_files import write_file
from support.snapshots import publish_batch, snapshot_meta

from batch_job import snapshot_file_writer
from batch_job.snapshot_file_writer import write_snapshot_file
from shared import snapshot_file, snapshot_file_layout
from shared.codes import Code
from shared.errors import SnapshotFileCorrupt
from shared.layout import bucket_of, buckets_of
from shared.snapshot import Absent, Found, KnownRejected, Lookup, Lost
from shared.snapshot_file import open_snapshot_file
from shared.snapshot_file_layout import check_of, checks_of, hash_of, hashes_of
from shared.store.interfaces import PublishBatch

SCORES = {f"C{number}": number / 64 for number in range(21)} | {"ü/ {}": 0.5}
REJECTED = {"r": (Code.NOT_A_NUMBER, 1)}
STRANGERS = ("", "C", "C21", "c1", "zzz")
META = snapshot_meta(entities=23)
EXPECTED: dict[str, Lookup] = {
    **{name: Found(scores=(score,), scored_at=1_700_000_000, online=False) for name, score in SCORES.items()},
    "r": KnownRejected(code=Code.NOT_A_NUMBER, field="returns", scored_at=1_700_000_000),
    **dict.fromkeys(STRANGERS, Absent()),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of 23 entities in six batches."""
    write_file(tmp_path / "snapshot.arrow", SCORES, REJECTED, batch_rows=4)
    return tmp_path / "snapshot.arrow"


def _answers(path: Path) -> dict[str, Lookup]:
    with open_snapshot_file(path) as opened:
        return dict(zip(EXPECTED, opened.lookup(list(EXPECTED)), strict=True))


def _require_no_lie(path: Path) -> None:
    """The file is refused, or tells of each entity what was written, or that it cannot tell."""
    try:
        found = _answers(path)
    except SnapshotFileCorrupt:
        return
    for name, one in found.items():
        assert isinstance(one, Lost) or one == EXPECTED[name], name


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("C0042", 0x37A7ECC6AC2), ("foobar", 0x459EF61F95), ("ä", 0x2370B5F183)]
)
def test_the_hash_is_the_one_of_the_format(text: str, expected: int) -> None:
    """Files outlive the program that wrote them. Its high half is the entity's bucket in the store."""
    assert hash_of(text.encode(), 1000) == expected
    assert expected >> 32 == bucket_of(text, 1000)


@settings(max_examples=25)
@given(st.lists(st.text(max_size=20), max_size=12), st.integers(1, 2**32 - 1), st.data())
def test_columns_are_hashed_and_checked_as_single_ids_are(texts: list[str], buckets: int, data: st.DataObject) -> None:
    """Writer and reader agree on every id and every value."""
    values = [data.draw(st.binary(max_size=12)) for _ in texts]
    ids = pa.array(texts, pa.string())
    hashes = hashes_of(ids, buckets_of(ids, buckets))
    assert hashes.tolist() == [hash_of(text.encode(), buckets) for text in texts]
    checks = checks_of(pa.array(values, pa.binary()), hashes)
    assert checks.tolist() == [check_of(value, int(of)) for value, of in zip(values, hashes, strict=True)]


def test_every_entity_is_found_and_nobody_else(path: Path) -> None:
    """Scores, rejections and absence come back as they were written, whichever batch they lie in."""
    assert _answers(path) == EXPECTED


def test_a_file_of_nobody_knows_nobody(tmp_path: Path) -> None:
    """An empty snapshot has a file too."""
    write_file(tmp_path / "snapshot.arrow", {})
    with open_snapshot_file(tmp_path / "snapshot.arrow") as opened:
        assert opened.lookup(["a"]) == [Absent()]


def test_ids_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id decides, however many share its hash, across the borders of batches too."""

    def few(entity_id: bytes, buckets: int) -> int:
        return hash_of(entity_id, buckets) >> 32

    monkeypatch.setattr(snapshot_file, "hash_of", few)
    monkeypatch.setattr(
        snapshot_file_writer, "hashes_of", lambda ids, buckets: hashes_of(ids, buckets) >> np.uint64(32)
    )
    write_file(tmp_path / "snapshot.arrow", SCORES, REJECTED, meta=META.model_copy(update={"buckets": 3}), batch_rows=4)
    assert _answers(tmp_path / "snapshot.arrow") == EXPECTED


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 40])
def test_the_same_rows_are_the_same_bytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    shared: bool,  # noqa: FBT001
) -> None:
    """In batches of whatever size, and in whatever order within a bucket, hashes that several ids share among them."""
    if shared:
        monkeypatch.setattr(snapshot_file_writer, "hashes_of", lambda ids, buckets: buckets.astype(np.uint64))
    meta = META.model_copy(update={"buckets": 3})
    write_file(tmp_path / "snapshot.arrow", SCORES, REJECTED, meta=meta, batch_rows=4)
    whole = publish_batch(meta, SCORES, REJECTED)
    order = np.lexsort((np.random.default_rng(rows).permutation(len(whole)), whole.buckets))
    ids, values = whole.ids.take(pa.array(order)), whole.values.take(pa.array(order))
    pieces = [
        PublishBatch(ids=ids[first:][:rows], buckets=whole.buckets[first:][:rows], values=values[first:][:rows])
        for first in range(0, len(whole) + 1, rows)
    ]
    other = tmp_path / "other.arrow"
    assert write_snapshot_file(other, meta, pieces, batch_rows=4) == 23
    assert other.read_bytes() == (tmp_path / "snapshot.arrow").read_bytes()


def test_batches_in_another_order_are_refused(tmp_path: Path) -> None:
    """What is not sorted could not be found again; and no half of a file is left."""
    meta = META.model_copy(update={"buckets": 2})
    whole = publish_batch(meta, SCORES, REJECTED)
    first, second = (whole.buckets == bucket for bucket in (0, 1))
    halves = [
        PublishBatch(
            ids=whole.ids.filter(pa.array(half)),
            buckets=whole.buckets[half],
            values=whole.values.filter(pa.array(half)),
        )
        for half in (second, first)
    ]
    with pytest.raises(ValueError, match="in the order of their buckets"):
        write_snapshot_file(tmp_path / "snapshot.arrow", meta, halves)
    assert not list(tmp_path.iterdir())


def test_any_byte_that_changes_is_found_out(path: Path) -> None:
    """Flipped bits anywhere in the file: it is refused, or the entity is lost; nobody gets another number."""
    whole = path.read_bytes()
    dice = random.Random(7)  # noqa: S311 - for damage
    for place in dice.sample(range(len(whole)), 150):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ dice.randrange(1, 256)]) + whole[place + 1 :])
        _require_no_lie(path)


@settings(max_examples=40)
@given(st.data())
def test_any_piece_that_moves_is_found_out(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes that were written elsewhere in the file are no better than others."""
    path = tmp_path_factory.mktemp("moved") / "snapshot.arrow"
    write_file(path, SCORES, REJECTED, batch_rows=4)
    whole = bytearray(path.read_bytes())
    size = data.draw(st.integers(1, 64))
    here, there = (data.draw(st.integers(0, len(whole) - size)) for _ in range(2))
    whole[here : here + size] = whole[there : there + size]
    path.write_bytes(whole)
    _require_no_lie(path)


def test_a_file_that_was_cut_is_refused(path: Path) -> None:
    """Its seal is at the end: without it, it is no file of a snapshot."""
    whole = path.read_bytes()
    for size in range(0, len(whole), 101):
        path.write_bytes(whole[:size])
        with pytest.raises(SnapshotFileCorrupt, match="cannot be read as the file of a snapshot"):
            open_snapshot_file(path)


def test_a_file_that_is_cut_while_it_is_open_loses_its_entities(path: Path) -> None:
    """What is read is proved each time, not only when it is opened."""
    with open_snapshot_file(path) as opened:
        with path.open("r+b") as file:
            file.seek(0)
            file.write(b"\0" * path.stat().st_size)
        assert opened.lookup(["C1"]) == [Lost("corrupt")]


@pytest.mark.parametrize("kind", ["nothing", "text", "parquet", "arrow", "folder"])
def test_a_foreign_file_is_refused(tmp_path: Path, kind: str) -> None:
    """Only files of this kind are opened, and the error says what to do."""
    path = tmp_path / "snapshot.arrow"
    table = pa.table({"id": ["a"]})
    if kind == "text":
        path.write_text("hello")
    elif kind == "parquet":
        pq.write_table(table, path)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(SnapshotFileCorrupt, match=r"snapshot\.arrow: .* again"):
        open_snapshot_file(path)


def test_the_seal_tells_whether_all_bytes_are_there(path: Path) -> None:
    """A copy of a file can be proved as a whole."""
    with open_snapshot_file(path) as opened:
        assert opened.is_unchanged()
        assert opened.meta == snapshot_meta(entities=23)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3] ^= 1
    path.write_bytes(whole)
    with open_snapshot_file(path) as opened:
        assert not opened.is_unchanged()


def test_opening_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches a file has, opening it looks at none of them, and a look-up at a few."""
    write_file(tmp_path / "snapshot.arrow", {f"C{n}": 0.5 for n in range(512)}, batch_rows=4)
    with open_snapshot_file(tmp_path / "snapshot.arrow") as opened:
        assert not opened._batches
        opened.lookup(["C100"])
        assert len(opened._batches) <= 9
    assert snapshot_file_layout.BATCH_ROWS > 100_000
