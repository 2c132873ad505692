"""Which rows do not count because another row of the same entity does."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batch_job import duplicates
from batch_job.duplicates import Survey, survey
from batch_job.source import Keys, Source, open_source
from shared.errors import ColumnRefused, DuplicateIds


def source(folder: Path, table: pa.Table, *, order_by: str | None = None, csv: bool = False) -> Source:
    path = folder / ("t.csv" if csv else "t.parquet")
    if csv:
        lines = [",".join("" if v is None else str(v) for v in row.values()) for row in table.to_pylist()]
        path.write_text("\n".join([",".join(table.column_names), *lines]) + "\n")
    else:
        pq.write_table(table, path)
    return open_source(str(path), entity="id", features=[], order_by=order_by)


def losers(folder: Path, table: pa.Table, *, order_by: str | None = None, csv: bool = False) -> list[int]:
    return survey(source(folder, table, order_by=order_by, csv=csv), "last", folder / "spool").losers.tolist()


def test_ids_that_differ_are_no_duplicates(tmp_path: Path) -> None:
    """``7``, ``007``, ``a`` and ``A`` are four entities, and rows without an id are none."""
    table = pa.table({"id": ["7", "007", "a", "A", None, None, "", ""]})
    found = survey(source(tmp_path, table), "refuse", tmp_path / "spool")
    assert found.rows == 8
    assert found.losers.tolist() == []


def test_duplicates_are_refused_unless_told_what_counts(tmp_path: Path) -> None:
    """The refusal counts them, names three ids and both ways out."""
    table = pa.table({"id": [1, 2, 3, 4, 5, 4, 3, 2, 1, 1]})
    with pytest.raises(DuplicateIds, match=r"^5 rows .* those of '1', '2', '3'; .*--order-by .*--duplicates last"):
        survey(source(tmp_path, table), "refuse", tmp_path / "spool")


@pytest.mark.parametrize("rows", [0, 1, 200_000])
def test_what_waits_for_the_first_ids_is_called_once(tmp_path: Path, rows: int) -> None:
    """As soon as some ids went all the way, long before all of them did; where there are none, never."""
    asked = source(tmp_path, pa.table({"id": pa.array(range(rows), pa.int64())}))
    seen: list[int] = []
    called: list[int] = []
    batches = asked.id_batches

    def watched(*, ordered: bool) -> Iterator[Keys]:
        for keys in batches(ordered=ordered):
            seen.append(len(keys.ids))
            yield keys

    object.__setattr__(asked, "id_batches", watched)
    found = survey(asked, "refuse", tmp_path / "spool", under_way=lambda: called.append(sum(seen)))
    assert (found.rows, sum(seen), len(called)) == (rows, rows, min(rows, 1))


def test_the_last_row_counts_if_told(tmp_path: Path) -> None:
    """With ``last`` every earlier row of an entity is a duplicate."""
    assert losers(tmp_path, pa.table({"id": ["a", "b", "a", "c", "a", "b"]})) == [0, 1, 2]


def test_three_rows_of_one_entity_newest_first(tmp_path: Path) -> None:
    """A8: the newest by the column counts, two are duplicates."""
    days = [date(2026, 11, 3), date(2026, 11, 2), date(2026, 11, 1)]
    table = pa.table({"id": ["a", "a", "a"], "day": days})
    assert losers(tmp_path, table, order_by="day") == [1, 2]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([9, 10, None], pa.int64()),
        ([2**63 - 2, 2**63 - 1, None], pa.int64()),
        ([9.0, 10.0, float("nan")], pa.float64()),
        ([9.0, 10.0, None], pa.float16()),
        (["9", " 10", ""], pa.string()),
        (["9.5", "1e1", None], pa.string()),
        (["2026-11-09", "2026-11-10", None], pa.string()),
        (["9x", "9y", None], pa.large_string()),
        ([9, 10, None], pa.timestamp("us", "UTC")),
        ([9, 10, None], pa.decimal128(5, 2)),
        ([False, True, None], pa.bool_()),
    ],
    ids=str,
)
def test_the_greatest_value_counts_and_a_missing_one_loses(tmp_path: Path, values: list[object], kind: object) -> None:
    """Numbers, also as text, dates and times compare as what they are; null and NaN lose against all."""
    table = pa.table({"id": ["a", "a", "a"], "order": pa.array(values, kind)})
    assert losers(tmp_path, table, order_by="order") == [0, 2]


def test_the_later_row_wins_a_tie(tmp_path: Path) -> None:
    """Equal values: the later row counts; all null: the last."""
    table = pa.table({"id": ["a", "a", "b", "b"], "order": pa.array([1, 1, None, None], pa.int64())})
    assert losers(tmp_path, table, order_by="order") == [0, 2]


def test_csv_orders_numbers_as_parquet_does(tmp_path: Path) -> None:
    """C8: 10 is more than 9 in a CSV file too, where both are text."""
    table = pa.table({"id": ["a", "a"], "order": [10, 9]})
    assert losers(tmp_path, table, order_by="order", csv=True) == [1]
    assert losers(tmp_path, table, order_by="order") == [1]


def test_a_column_that_has_no_order_is_refused(tmp_path: Path) -> None:
    """A list cannot say which row is later."""
    table = pa.table({"id": ["a"], "order": [[1]]})
    with pytest.raises(ColumnRefused, match="--order-by: column order is list"):
        losers(tmp_path, table, order_by="order")


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 3)), max_size=40), st.integers(1, 50))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_entity_keeps_exactly_its_winner(
    tmp_path: Path, rows: list[tuple[str, int | None]], memory_rows: int
) -> None:
    """Spilled to disk or not, one row of each entity is left, and it is the one that a plain loop finds."""
    table = pa.table(
        {"id": pa.array([row[0] for row in rows], pa.string()), "order": pa.array([row[1] for row in rows], pa.int64())}
    )
    winners: dict[str, tuple[int, int]] = {}
    for number, (name, order) in enumerate(rows):
        winners[name] = max(winners.get(name, (-2, -1)), (-1 if order is None else order, number))
    found = survey(source(tmp_path, table, order_by="order"), "refuse", tmp_path / "spool", memory_rows=memory_rows)
    assert found.losers.tolist() == sorted(set(range(len(rows))) - {number for _, number in winners.values()})
    assert not (tmp_path / "spool").exists()


def test_the_losers_of_a_chunk() -> None:
    """A survey marks the rows of a chunk by their place in it."""
    found = Survey(rows=10, losers=pa.array([1, 4, 5, 9]).to_numpy())
    assert found.lost(4, 3).tolist() == [True, True, False]
    assert found.lost(6, 3).tolist() == [False, False, False]


def test_ids_that_share_a_fingerprint_are_compared_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fingerprint only says where to look: even if all ids had the same, only equal texts would be duplicates."""
    monkeypatch.setattr(duplicates, "fingerprints", lambda ids: np.zeros(len(ids), np.uint64))
    assert losers(tmp_path, pa.table({"id": ["a", "b", "a", "c", None, "b"]})) == [0, 1]
