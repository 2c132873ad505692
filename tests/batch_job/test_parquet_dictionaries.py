"""How long the texts of a Parquet dictionary are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_job.parquet_dictionaries import ShortTexts, longest_text
from batch_job.readers import open_reader
from batch_job.source import find_files

CODECS = ["none", "snappy", "gzip", "brotli", "zstd"]


def _write(path: Path, texts: list[str | None], **options: object) -> Path:
    pq.write_table(pa.table({"id": pa.array(texts, pa.string())}), path, **options)
    return path


def _longest(path: Path) -> int | None:
    with pa.OSFile(str(path)) as source:
        return longest_text(source, pq.read_metadata(source).row_group(0).column(0))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("texts", [["C01", "C02", None, "C01"], ["", "a", None, "long one"], ["", ""], ["ä" * 5]])
def test_the_longest_text_of_a_dictionary_is_known(
    tmp_path: Path, codec: str, version: str, texts: list[str | None]
) -> None:
    """In bytes, whatever the codec, of texts of one length and of many."""
    path = _write(tmp_path / "t.parquet", texts, compression=codec, data_page_version=version)
    assert _longest(path) == max(len(text.encode()) for text in texts if text is not None)


def test_nothing_is_said_of_a_column_without_one(tmp_path: Path) -> None:
    """Its first page holds rows."""
    assert _longest(_write(tmp_path / "t.parquet", ["a", "b"], use_dictionary=False)) is None


@given(place=st.integers(4, 80), byte=st.integers(0, 255))
def test_a_damaged_page_is_left_to_whoever_reads_the_rows(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int
) -> None:
    """Nothing is raised, and no text is said to be shorter than the page's own lengths say."""
    path = _write(tmp_path_factory.mktemp("damaged") / "t.parquet", ["first", "second one"], compression="none")
    data = bytearray(path.read_bytes())
    data[place] = byte
    path.write_bytes(data)
    found = _longest(path)
    assert found is None or 0 <= found <= len(data)


def test_short_texts_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group of many ids is large beside one id: that is no reason to measure each batch."""
    monkeypatch.setattr("batch_job.parquet_bounds.MAX_TEXT_BYTES", 100_000)
    monkeypatch.setattr("batch_job.parquet_bounds._text_bytes", _never)
    ids = [f"C{row:05}" for row in range(2000)]
    path = _write(tmp_path / "t.parquet", [*ids, *ids])
    batches = open_reader(find_files(str(path))).batches(str(path), ["id"], 1000)
    assert [text for batch in batches for text in batch["id"].to_pylist()] == [*ids, *ids]


def test_a_long_text_in_any_row_group_is_found(tmp_path: Path) -> None:
    """The file's columns are short only if each of its dictionaries is."""
    path = _write(tmp_path / "t.parquet", ["a", "b", "c", "x" * 300_000], row_group_size=2)
    with pa.OSFile(str(path)) as source:
        metadata = pq.read_metadata(source)
        short = ShortTexts()
        assert short.among(str(path), source, metadata, frozenset({"id"}), 10) == {"id"}
        assert short.among(str(path), source, metadata, frozenset({"id"}), 1000) == frozenset()


@pytest.mark.parametrize("byte", [0x1C, 0x15, 0xFF])
def test_a_header_without_an_end_is_given_up(tmp_path: Path, byte: int) -> None:
    """Structures in structures, numbers after numbers, or a number that goes on: no more is read than a header has."""
    path = _write(tmp_path / "t.parquet", [f"text {row}" for row in range(500)], compression="none")
    data = bytearray(path.read_bytes())
    data[4:4004] = bytes([byte]) * 4000
    path.write_bytes(data)
    assert _longest(path) is None


def _never(_: object) -> int:
    raise AssertionError("the batch was measured")
