"""Part files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_job.counts import Counts, RejectionCount
from batch_job.parts import (
    PartInfo,
    PartPlan,
    complete_part,
    part_schema,
    plan_parts,
    read_part,
    rows_with_id,
    score_names,
    write_part,
)
from shared.errors import AccountingBroken, RunError

PLAN = PartPlan(run_key="k", index=3, first_row=6, rows=3)
COUNTS = Counts(
    input=3, scored=1, rejected=1, duplicate=1, rejections=(RejectionCount(code="missing", field="x", rows=1),)
)
INFO = PartInfo(plan=PLAN, counts=COUNTS)


def table() -> pa.Table:
    columns = [["a", "b"], [6, 8], ["scored", "rejected"], [None, "missing"], [None, "x"], ["1", "1"]]
    return pa.table([*columns, pa.array([0.5, None], pa.float32())], schema=part_schema(["score"]))


def test_a_part_is_what_was_written(tmp_path: Path) -> None:
    """All rows come back, and the footer alone tells which chunk of which run they are."""
    write_part(tmp_path, table(), INFO)
    assert read_part(tmp_path / "part-00003.parquet").to_pylist() == table().to_pylist()
    assert complete_part(tmp_path, PLAN) == INFO
    assert [path.name for path in tmp_path.iterdir()] == ["part-00003.parquet"]


def test_a_part_has_the_same_bytes_whenever_it_is_written(tmp_path: Path) -> None:
    """Nothing in a part depends on the clock."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_part(tmp_path / folder, table(), INFO)
    assert (tmp_path / "a" / PLAN.name).read_bytes() == (tmp_path / "b" / PLAN.name).read_bytes()


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_truncated_part_is_not_complete(tmp_path: Path, share: float) -> None:
    """D6: a file that was cut short is made again."""
    write_part(tmp_path, table(), INFO)
    path = tmp_path / PLAN.name
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert complete_part(tmp_path, PLAN) is None


@pytest.mark.parametrize("change", [{"run_key": "other"}, {"first_row": 5}, {"rows": 4}])
def test_a_part_of_another_run_is_not_complete(tmp_path: Path, change: dict[str, object]) -> None:
    """D9: a part is known by its run key and its rows, not by its name."""
    write_part(tmp_path, table(), INFO)
    assert complete_part(tmp_path, PLAN.model_copy(update=change)) is None


def test_a_part_whose_rows_are_not_those_of_its_counts_is_not_complete(tmp_path: Path) -> None:
    """D7: the row count is checked against the footer."""
    described = table().slice(0, 1).replace_schema_metadata({b"forescore.part": INFO.model_dump_json()})
    pq.write_table(described, tmp_path / PLAN.name)
    assert complete_part(tmp_path, PLAN) is None


def test_a_parquet_file_of_somebody_else_is_not_complete(tmp_path: Path) -> None:
    """A file without our metadata is no part."""
    pq.write_table(table(), tmp_path / PLAN.name)
    assert complete_part(tmp_path, PLAN) is None


def test_counts_that_do_not_fit_the_rows_write_nothing(tmp_path: Path) -> None:
    """Rows that are not accounted for stop before a file is there."""
    with pytest.raises(AccountingBroken, match="part-00003"):
        write_part(tmp_path, table().slice(0, 1), INFO)
    assert list(tmp_path.iterdir()) == []


def test_a_flipped_bit_is_found_when_a_part_is_read(tmp_path: Path) -> None:
    """Pages are checked by their sums."""
    write_part(tmp_path, table(), INFO)
    path = tmp_path / PLAN.name
    data = bytearray(path.read_bytes())
    data[pq.read_metadata(path).row_group(0).column(0).dictionary_page_offset or 40] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(RunError, match="cannot be read; remove it"):
        read_part(path)


def changed(folder: Path, before: bytes, after: bytes) -> Path:
    """The part, in whose footer this is that."""
    write_part(folder, table(), INFO)
    path = folder / PLAN.name
    data = path.read_bytes()
    assert data.count(before) == 1
    path.write_bytes(data.replace(before, after))
    return path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\x25\x02\x18\x09entity_id", b"\x25\x00\x18\x09entity_id"),
        (b"\x18\x09entity_id\x25", b"\x18\x09entity_\xe9d\x25"),
    ],
    ids=["levels", "name"],
)
def test_a_footer_that_cannot_be_is_found(tmp_path: Path, before: bytes, after: bytes) -> None:
    """One flipped bit in it could end the process that counts rows by it."""
    with pytest.raises(RunError, match="cannot be read; remove it"):
        rows_with_id(changed(tmp_path, before, after))


def test_rows_are_counted_where_the_footer_has_no_counts_of_this_type(tmp_path: Path) -> None:
    """The rows are read where what is known of them is said to be of another type than they have."""
    column = b"\x19\x25\x06\x00\x19\x18\x09entity_id"
    assert rows_with_id(changed(tmp_path, b"\x15\x0c" + column, b"\x15\x04" + column)) == len(table())


@given(st.integers(0, 1000), st.integers(1, 300))
def test_a_plan_covers_each_row_once(rows: int, chunk_size: int) -> None:
    """The chunks of a run follow one another, and hold all rows."""
    plans = list(plan_parts("k", rows, chunk_size))
    covered = [row for plan in plans for row in range(plan.first_row, plan.first_row + plan.rows)]
    assert covered == list(range(rows))
    assert [plan.index for plan in plans] == list(np.arange(len(plans)))


def test_a_score_is_never_taken_for_a_column_of_the_part() -> None:
    """A score named ``code`` has a column of its own."""
    assert score_names(("code", "buys")) == ("code (score)", "buys")
