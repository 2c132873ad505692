"""Tables made to break their reader: an error that names the file, no crash, and nothing that could be published."""

import io
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzing import budget
from support.runs import run

from batch_job.job import Means
from batch_job.manifest import RunState, read_manifest
from batch_job.publish import publish_run
from batch_job.source import open_source
from shared.errors import ForescoreError, RunError
from shared.scorer import Scorer, open_scorer
from shared.settings import Settings
from shared.testing.bundles import purchase_bundle
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

MARKER = "T4INT"
COLUMNS = ("visits", "returns", "basket")
FOUR: dict[str, object] = {
    "customer_id": ["0", "1", "2", "3"],
    "visits": [1.0, 0.0, 2.0, 1.0],
    "returns": [0, 3, 1, 1],
    "basket": [MARKER, "1", "0", "1"],
}
NESTED = pa.array([{"a": [1]}] * 4)


def _written(columns: dict[str, object] | None = None, **options: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(FOUR if columns is None else columns), buffer, **options)
    return buffer.getvalue()


WHOLE = [
    _written(),
    _written(compression="zstd", data_page_version="2.0"),
    _written(compression="none", use_dictionary=False, write_statistics=False),
    _written(column_encoding={"customer_id": "DELTA_BYTE_ARRAY", "visits": "BYTE_STREAM_SPLIT"}, use_dictionary=False),
    _written(row_group_size=1, write_page_index=True, write_page_checksum=True),
]


def _with_footer(length: int) -> bytes:
    return WHOLE[0][:-8] + length.to_bytes(4, "little", signed=False) + b"PAR1"


def _with_other(before: bytes, after: bytes) -> bytes:
    """The first file, in whose footer this is that."""
    assert WHOLE[0].count(before) == 1
    return WHOLE[0].replace(before, after)


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "magic alone": b"PAR1",
    "magic twice": b"PAR1PAR1",
    "no footer": b"PAR1" + bytes(8) + b"PAR1",
    "footer of 4 GiB": _with_footer(2**32 - 1),
    "footer of nothing": _with_footer(0),
    "footer too short": _with_footer(20),
    "footer of noise": b"PAR1" + bytes(range(256)) + (256).to_bytes(4, "little") + b"PAR1",
    "sizes of other levels than the column has": _with_other(b"\x25\x02\x18\x06visits", b"\x25\x00\x18\x06visits"),
    "sizes of texts in numbers": _with_other(b"\x15\x0c\x25\x02\x18\x06basket", b"\x15\x08\x25\x02\x18\x06basket"),
    "a compression that there is not": _with_other(
        b"\x19\x18\x0bcustomer_id\x15\x02", b"\x19\x18\x0bcustomer_id\x15\x12"
    ),
    "a name of two lines": _with_other(b"\x25\x02\x18\x06visits", b"\x25\x02\x18\x06visi\ns"),
    "encrypted": WHOLE[0][:-4] + b"PARE",
    "cut in the middle": WHOLE[0][: len(WHOLE[0]) // 2],
    "without its end": WHOLE[0][:-1],
    "footer alone": WHOLE[0][-600:],
    "text": b"customer_id,visits\n1,2\n",
    "no columns": _written({}),
    "no id": _written({name: FOUR[name] for name in COLUMNS}),
    "id twice": _written({"Customer_id": FOUR["customer_id"], **{name: FOUR[name] for name in COLUMNS}}),
    "id nested": _written({**FOUR, "customer_id": NESTED}),
    "id of floats": _written({**FOUR, "customer_id": [0.0, 1.0, 2.0, 3.0]}),
    "id of dates": _written(
        {**FOUR, "customer_id": pa.array([0, 1, 2, 3], pa.timestamp("ns"))}, use_deprecated_int96_timestamps=True
    ),
}
STRANGE: dict[str, bytes] = {
    "feature nested": _written({**FOUR, "visits": NESTED}),
    "feature a map": _written({**FOUR, "visits": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int64()))}),
    "feature of int96 dates": _written(
        {**FOUR, "visits": pa.array([0, 1, 2, 2**62], pa.timestamp("ns"))}, use_deprecated_int96_timestamps=True
    ),
    "feature of nulls": _written({**FOUR, "visits": pa.nulls(4)}),
    "feature of bytes": _written({**FOUR, "visits": [b"\xff\xfe", b"", b"\0", b"1"]}),
    "feature of wide decimals": _written({**FOUR, "visits": pa.array([1] * 4, pa.decimal256(76, 0))}),
    "feature of durations": _written({**FOUR, "visits": pa.array([1] * 4, pa.duration("us"))}),
    "dictionary of one long text": _written({**FOUR, "basket": ["9" * 100_000] * 4}),
    "many columns": _written({**FOUR, **{f"c{place}": [0] * 4 for place in range(2_000)}}),
    "no rows": _written({name: pa.array(column).slice(0, 0) for name, column in FOUR.items()}),
}
"""What Parquet allows and a schema does not: rows are rejected, or the column is refused."""


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    return open_scorer(purchase_bundle(tmp_path_factory.mktemp("parquet") / "bundle"), device="cpu")


@pytest.fixture
def means(scorer: Scorer, tmp_path: Path) -> Means:
    return Means(
        settings=Settings(home=tmp_path / "home"), clock=FrozenClock(), entropy=bytes, open_scores=lambda: scorer
    )


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_file_is_named(tmp_path: Path, name: str) -> None:
    """One line, with the file, and without a value from it."""
    path = tmp_path / "hostile.parquet"
    path.write_bytes(HOSTILE[name])
    error = _read(path)
    assert error is not None
    _assert_tells(error, path)


@pytest.mark.parametrize("name", [*HOSTILE, *STRANGE])
def test_nothing_of_it_is_published(tmp_path: Path, means: Means, scorer: Scorer, name: str) -> None:
    """A run over a good file and a hostile one ends as failed, or accounts for each row; no half of it is published."""
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(_written({**FOUR, "basket": ["2", "1", "0", "1"]}))
    (folder / "b.parquet").write_bytes((HOSTILE | STRANGE)[name])
    out = tmp_path / "out"
    try:
        manifest = run(folder, out, scorer.bundle, means, duplicates="last")
    except ForescoreError as error:
        _assert_tells(error, folder)
        _assert_not_publishable(out, means)
    else:
        assert name in STRANGE
        assert manifest.state is RunState.SCORED
        assert manifest.counts.input == manifest.counts.scored + manifest.counts.rejected + manifest.counts.duplicate


@given(data=st.data())
@budget(150)
def test_a_damaged_file_is_read_or_named(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes flipped anywhere, the footer above all, or cut off: what cannot be read is an error of ours."""
    whole = bytearray(data.draw(st.sampled_from(WHOLE)))
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    for _ in range(data.draw(st.integers(1, 4))):
        within = footer if data.draw(st.booleans()) else len(whole)
        whole[-data.draw(st.integers(1, within))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole))) :]
    path = tmp_path_factory.getbasetemp() / "damaged.parquet"
    path.write_bytes(whole)
    if (error := _read(path)) is not None:
        _assert_tells(error, path)


def _read(path: Path) -> ForescoreError | None:
    """Reads it as a run does: what is there, the ids, then the chunks. Any error but one of ours comes through."""
    try:
        source = open_source(str(path), entity="customer_id", features=COLUMNS, coded=["basket"])
        _drain(source.id_batches())
        _drain(source.chunks(2))
    except ForescoreError as error:
        return error
    return None


def _drain(rows: Iterable[object]) -> None:
    for _ in rows:
        pass


def _assert_tells(error: ForescoreError, path: Path) -> None:
    text = str(error)
    assert str(path) in text or "customer_id" in text
    assert "\n" not in text
    assert MARKER not in text
    assert len(text) < 2_000


def _assert_not_publishable(out: Path, means: Means) -> None:
    manifest = read_manifest(out) if out.exists() else None
    assert manifest is None or not manifest.done
    if out.exists():
        memory = MemoryStore("purchase", means.clock)
        with pytest.raises(RunError):
            publish_run(out, memory.store, means)
        assert memory.store.catalogue.snapshots() == []
