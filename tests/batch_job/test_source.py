"""Reading a table in chunks."""

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from batch_job import readers
from batch_job.source import EVERYTHING, Selection, Source, open_source
from shared.errors import ColumnMissing, ColumnRefused, SettingsError, SourceError, TableNotFound

ROWS = pa.table({"id": ["007", "b", None, "d", "e"], "x": [1, 2, 3, 4, None], "y": [0.5, None, 1.5, 2.0, 3.0]})


def write(path: Path, table: pa.Table = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path, row_group_size=2)
        case ".feather":
            feather.write_feather(table, path)
        case ".csv":
            lines = [",".join("" if v is None else str(v) for v in row.values()) for row in table.to_pylist()]
            path.write_text("\n".join([",".join(table.column_names), *lines]) + "\n")
    return path


def source(path: Path | str, selection: Selection = EVERYTHING, order_by: str | None = None) -> Source:
    return open_source(str(path), entity="id", features=["x", "y"], selection=selection, order_by=order_by)


def rows(path: Path | str, selection: Selection = EVERYTHING) -> list[dict[str, object]]:
    return [row for chunk in source(path, selection).chunks(2) for row in chunk.table.to_pylist()]


def ids(path: Path | str, selection: Selection = EVERYTHING) -> list[object]:
    return [row["id"] for row in rows(path, selection)]


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_a_typed_file_is_read_with_its_types(tmp_path: Path, name: str) -> None:
    """Parquet and Arrow files give their rows in order and as they are."""
    assert rows(write(tmp_path / name)) == ROWS.to_pylist()


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_the_rows_are_the_same_on_every_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """Few cores read in one thread, many with Arrow's."""
    monkeypatch.setattr(readers, "cores", lambda: cores)
    assert rows(write(tmp_path / "t.parquet")) == ROWS.to_pylist()


def test_a_csv_file_is_text_and_only_the_empty_cell_is_missing(tmp_path: Path) -> None:
    """B4: ``007`` keeps its zeros, ``NaN``, ``null`` and ``true`` stay text, ``""`` and nothing are null."""
    path = tmp_path / "t.csv"
    path.write_text('id,x,y\n007,NaN,null\n,"",true\n"a\nb,""c""", 1 ,N/A\n')
    assert rows(path) == [
        {"id": "007", "x": "NaN", "y": "null"},
        {"id": None, "x": None, "y": "true"},
        {"id": 'a\nb,"c"', "x": " 1 ", "y": "N/A"},
    ]


def test_a_compressed_csv_file_is_read(tmp_path: Path) -> None:
    """A name ending in .csv.gz is a CSV file."""
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfid,x,y\n7,1,2\n"))
    assert rows(path) == [{"id": "7", "x": "1", "y": "2"}]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.csv"])
def test_chunks_have_exactly_the_asked_size(tmp_path: Path, name: str, size: int) -> None:
    """Chunks cross row groups and files, are all of the asked size but the last, and number the rows."""
    for part in ("a", "b"):
        write(tmp_path / "table" / f"{part}-{name}")
    chunks = list(source(tmp_path / "table").chunks(size))
    assert [len(chunk) for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
    assert sum(map(len, chunks)) == 10
    assert [chunk.first_row for chunk in chunks] == [size * index for index in range(len(chunks))]
    found = [row["id"] for chunk in chunks for row in chunk.table.to_pylist()]
    assert found == 2 * ["007", "b", None, "d", "e"]


def test_a_line_of_another_length_is_a_marked_row_in_its_place(tmp_path: Path) -> None:
    """D10: a CSV line with too few or too many cells costs itself; every other row keeps its number."""
    path = tmp_path / "t.csv"
    path.write_text("id,x,y\n1,1\na,1,2\n\n2,2\n3,3,3,3\nb,1,2\nc,1,2\n4,4\n")
    chunks = list(source(path).chunks(3))
    assert [row["id"] for chunk in chunks for row in chunk.table.to_pylist()] == [None, "a", None, None, "b", "c", None]
    assert [bool(flag) for chunk in chunks for flag in chunk.malformed] == [True, False, True, True, False, False, True]


def test_malformed_lines_keep_their_places_across_blocks(tmp_path: Path) -> None:
    """Among many blocks of lines each malformed one stands where it stood in the file."""
    path = tmp_path / "t.csv"
    lines = [f"{row}," + "x" * 200 if row % 9_973 == 5 else f"{row},{'1' * 400},2" for row in range(60_000)]
    path.write_text("id,x,y\n" + "\n".join(lines))
    found = [
        (chunk.first_row + row, text, bool(flag))
        for chunk in source(path).chunks(7_000)
        for row, (text, flag) in enumerate(zip(chunk.table["id"].to_pylist(), chunk.malformed, strict=True))
    ]
    assert found == [(row, None if row % 9_973 == 5 else str(row), row % 9_973 == 5) for row in range(60_000)]


def test_a_file_of_another_separator_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Malformed lines without end mean another format: refused instead of gathered in memory."""
    monkeypatch.setattr("batch_job.csv_lines.MAX_MALFORMED", 10)
    path = tmp_path / "t.csv"
    path.write_text("id,x,y\n" + "1;2;3\n" * 11)
    with pytest.raises(SourceError, match=r"more than 10 lines in a row .* separated by commas"):
        rows(path)


def test_files_are_read_in_the_order_of_their_paths(tmp_path: Path) -> None:
    """The order of the rows is that of the sorted paths; hidden files and other files are not part of the table."""
    for name in ("b", "a", "c"):
        write(tmp_path / f"{name}.parquet", pa.table({"id": [name], "x": [1], "y": [1.0]}))
    write(tmp_path / "_old" / "d.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").touch()
    assert ids(tmp_path) == ["a", "b", "c"]
    assert ids(tmp_path / "[ab]*.parquet") == ["a", "b"]
    assert ids(f"file://{tmp_path}") == ["a", "b", "c"]


def partitioned(folder: Path) -> Path:
    for date in ("2026-11-01", "2026-11-02"):
        table = pa.table({"id": [f"{date}-{row}" for row in range(2)], "x": [1, 2]})
        write(folder / f"dt={date}" / "y=07" / "part.parquet", table)
    return folder


def test_columns_of_the_folders_are_text(tmp_path: Path) -> None:
    """B4: ``y=07`` in a path is the text 07 in a column, and can be a feature."""
    assert {row["y"] for row in rows(partitioned(tmp_path))} == {"07"}


def test_one_partition(tmp_path: Path) -> None:
    """``--partition`` reads the files of that folder only, and its date is how old the data is."""
    selection = Selection(partition="dt=2026-11-01")
    assert ids(partitioned(tmp_path), selection) == ["2026-11-01-0", "2026-11-01-1"]
    assert source(tmp_path, selection).as_of == 1793491200
    assert source(tmp_path).as_of == 1793491200 + 86_400


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("dt=2026-11-03", "no partition dt=2026-11-03; the last ones are 2026-11-01, 2026-11-02"),
        ("day=1", "no partition day=1; it is partitioned by dt, y"),
    ],
)
def test_an_unknown_partition_names_the_known_ones(tmp_path: Path, partition: str, message: str) -> None:
    """A partition that is not there is an error that helps."""
    with pytest.raises(TableNotFound, match=message):
        source(partitioned(tmp_path), Selection(partition=partition))


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("x >= 2", ["b", None, "d"]),
        ("x > 2 and y <= 2", [None, "d"]),
        ("id = '007'", ["007"]),
        ("id in ('b', 'e')", ["b", "e"]),
        ("x in (1, 4)", ["007", "d"]),
        ("y != 0.5", [None, "d", "e"]),
        ("x < -1", []),
    ],
)
def test_a_filter_means_the_same_in_every_format(tmp_path: Path, name: str, where: str, found: list[object]) -> None:
    """``--where`` keeps the same rows of a CSV and of a Parquet file; a missing value meets nothing."""
    assert ids(write(tmp_path / name), Selection(where=where)) == found


def test_the_limit_counts_rows_after_the_filters(tmp_path: Path) -> None:
    """``--limit`` takes the first so many of the rows that are left."""
    assert ids(write(tmp_path / "t.parquet"), Selection(where="x >= 2", limit=2)) == ["b", None]


def test_only_the_listed_entities(tmp_path: Path) -> None:
    """``--entities`` compares the written form of ids, so that a line 7 finds the integer 7."""
    (tmp_path / "ids.txt").write_text("7\r\n\n9\n")
    table = pa.table({"id": [7, 8, 9], "x": [1, 2, 3], "y": [1.0, 2.0, 3.0]})
    assert ids(write(tmp_path / "t.parquet", table), Selection(entities=tmp_path / "ids.txt")) == [7, 9]


def test_the_fingerprint_tells_a_changed_table(tmp_path: Path) -> None:
    """Another size or time of change of any file is another input."""
    path = write(tmp_path / "t.parquet")
    first = source(path).fingerprint()
    assert source(path).fingerprint() == first
    os.utime(path, ns=(1, 1))
    assert source(path).fingerprint() != first


def test_every_filter_changes_the_digest_of_the_filters(tmp_path: Path) -> None:
    """Runs over other rows of the same table have other keys."""
    path = partitioned(tmp_path / "table")
    lists = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for number, file in enumerate(lists):
        file.write_text(f"{number}\n")
    selections = [EVERYTHING, Selection(limit=1), Selection(where="x = 1"), Selection(partition="dt=2026-11-01")]
    selections += [Selection(entities=file) for file in lists]
    assert len({source(path, selection).filters() for selection in selections}) == len(selections)


def test_integers_and_floats_of_several_files_meet_exactly(tmp_path: Path) -> None:
    """A column that pandas wrote as int64 and as float64 is read as float64, unless a whole number would be rounded."""
    write(tmp_path / "a.parquet", pa.table({"id": ["a"], "x": [1], "y": [1.0]}))
    write(tmp_path / "b.parquet", pa.table({"id": ["b"], "x": [1.5], "y": pa.nulls(1)}))
    assert [row["x"] for row in rows(tmp_path)] == [1.0, 1.5]
    write(tmp_path / "c.parquet", pa.table({"id": ["c"], "x": [2**53 + 1], "y": [1.0]}))
    with pytest.raises(SourceError, match=r"c.parquet: a whole number does not fit"):
        rows(tmp_path)


def test_text_in_one_file_and_numbers_in_another_are_refused(tmp_path: Path) -> None:
    """A column with two meanings is refused, and both files are named."""
    write(tmp_path / "a.parquet", pa.table({"id": ["a"], "x": [1], "y": [1.0]}))
    write(tmp_path / "b.parquet", pa.table({"id": ["b"], "x": ["1"], "y": [1.0]}))
    with pytest.raises(SourceError, match=r"column x is int64 in .*a.parquet and string in .*b.parquet"):
        source(tmp_path)


def test_a_missing_column_is_named_with_those_near_it(tmp_path: Path) -> None:
    """A wrong column name is one line with what it may have meant."""
    path = write(tmp_path / "t.parquet", pa.table({"customer_id": [1], "x": [1], "y": [1]}))
    with pytest.raises(ColumnMissing, match="column custumer_id is missing; near it: customer_id"):
        open_source(str(path), entity="custumer_id", features=["x"])


def test_a_file_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    """One file of a folder without the column is an error, and not a column of nulls."""
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", ROWS.drop_columns(["y"]))
    with pytest.raises(ColumnMissing, match=r"b.parquet: column y is missing"):
        source(tmp_path)


def test_a_float_column_of_ids_is_refused(tmp_path: Path) -> None:
    """Ids that were floats are refused before anything is read."""
    with pytest.raises(ColumnRefused, match="column id is double"):
        source(write(tmp_path / "t.parquet", pa.table({"id": [1.0], "x": [1], "y": [1]})))


def test_a_row_group_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded before it is allocated: the size of a row group is looked at before it is read."""
    monkeypatch.setattr("batch_job.parquet_bounds.MAX_ROW_GROUP_BYTES", 10)
    with pytest.raises(SourceError, match=r"row group 0 has .* smaller row groups"):
        rows(write(tmp_path / "t.parquet"))


def damaged(path: Path) -> Path:
    data = bytearray(write(path).read_bytes())
    data[8:60] = bytes(52)
    path.write_bytes(data)
    return path


def not_utf8(path: Path) -> Path:
    path.write_bytes(b"id,x,y\na,\xff,2\n")
    return path


def empty_folder(path: Path) -> Path:
    path.mkdir()
    return path


def of_no_format(path: Path) -> Path:
    path.write_text("x")
    return path


@pytest.mark.parametrize(
    ("make", "name", "error", "message"),
    [
        (lambda path: path, "absent.parquet", TableNotFound, "no such file or folder; name a Parquet"),
        (empty_folder, "empty", TableNotFound, "holds no file ending in"),
        (of_no_format, "t.xlsx", SourceError, "the name says no format"),
        (of_no_format, "t.parquet", SourceError, "damaged or not of the format"),
        (of_no_format, "t.feather", SourceError, "damaged or not of the format"),
        (damaged, "t.parquet", SourceError, "cannot be read"),
        (not_utf8, "t.csv", SourceError, "not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, make: object, name: str, error: type[SourceError], message: str
) -> None:
    """A wrong path or a broken file ends in one line that names it."""
    path = make(tmp_path / name)  # type: ignore[operator]
    with pytest.raises(error, match=message) as caught:
        rows(path)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(limit=0), "--limit: at least 1"),
        (Selection(partition="dt"), "write it as key=value"),
        (Selection(where="x = 'a'"), "position 1: column x is int64 and cannot be compared"),
    ],
)
def test_a_selection_that_cannot_be_is_refused_at_once(tmp_path: Path, selection: Selection, message: str) -> None:
    """A wrong option is found before a row is read."""
    with pytest.raises(SettingsError, match=message):
        source(write(tmp_path / "t.parquet"), selection)


def test_a_list_of_entities_that_cannot_be_read(tmp_path: Path) -> None:
    """A list that is not there, or empty, is named."""
    path = write(tmp_path / "t.parquet")
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        source(path, Selection(entities=tmp_path / "none.txt"))
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(SourceError, match="lists no ids"):
        source(path, Selection(entities=tmp_path / "empty.txt"))
