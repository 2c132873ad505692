"""The language of ``--where``."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from batch_job.where import parse_where
from shared.errors import SettingsError

TABLE = pa.table(
    {
        "row": [0, 1, 2],
        "name": ["it's", "b", None],
        "a-b c": [1, 2, 3],
        "flag": [True, False, None],
        "flag_text": [" TRUE", "0", "x"],
        "number_text": [" 1.5", "abc", "3"],
        "day": pa.array([date(2026, 11, 1), date(2026, 11, 2), None]),
        "moment": pa.array([datetime(2026, 11, 1, tzinfo=UTC), None, datetime(2026, 11, 3, tzinfo=UTC)]),
        "local": pa.array([datetime(2026, 11, 1), None, datetime(2026, 11, 3)]),  # noqa: DTZ001 a column without a zone
        "price": pa.array([Decimal("1.10"), Decimal("2.20"), None]),
        "small": pa.array([0.1, 0.2, 0.3], pa.float32()),
        "big": pa.array([2**63, 1, 2], pa.uint64()),
        "category": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("name = 'it''s'", [0]),
        ('"a-b c" >= 2', [1, 2]),
        ("flag = true", [0]),
        ("flag != TRUE", [1]),
        ("flag_text = true", [0]),
        ("flag_text = false", [1]),
        ("number_text > 1", [0, 2]),
        ("day >= '2026-11-02'", [1]),
        ("moment < '2026-11-02'", [0]),
        ("local = '2026-11-03'", [2]),
        ("price = 1.1", [0]),
        ("price > 2", [1]),
        ("small = 0.1", [0]),
        ("big = 9223372036854775808", [0]),
        ("category in ('x', 'z')", [0, 2]),
        ("row>=1 AND row<=1", [1]),
        ("row in (0)", [0]),
        ("row != -1", [0, 1, 2]),
        ("row < 1e0", [0]),
    ],
)
def test_what_a_filter_keeps(text: str, rows: list[int]) -> None:
    """Each type of column compares with its literals."""
    assert parse_where(text).apply(TABLE)["row"].to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "position 1: expected the name of a column"),
        ("row", "position 4: expected = != < <= > >= or in"),
        ("row =", "position 6: expected a text in single quotes"),
        ("row = 'a", "position 7: a text needs a closing quote"),
        ("row = 1 or row = 2", "position 9: expected 'and' or the end; 'or' is not part"),
        ("row = 1 and", "position 12: expected the name of a column"),
        ("row in 1", r"position 8: expected a list such as \('a', 'b'\)"),
        ("row in (1", "position 8: expected a list"),
        ("row in ()", "position 9: expected a text, a number"),
        ("row in (1 2)", "position 11: expected a comma"),
        ("row in (1,)", "position 11: expected a text, a number"),
        ("row == 1", "position 6: expected a text in single quotes"),
        ("row = name", "position 7: expected a text in single quotes"),
        ("row ; 1", "position 5: this is not understood"),
        ("'row' = 1", "position 1: expected the name of a column"),
    ],
)
def test_a_mistake_is_told_with_its_position(text: str, message: str) -> None:
    """An error says where the text stops being a filter, and what was expected there."""
    with pytest.raises(SettingsError, match=f"^--where: {message}"):
        parse_where(text)


@pytest.mark.parametrize("text", ["row = 'a'", "flag = 1", "day = 5", "day = 'soon'", "row = true"])
def test_a_literal_of_another_kind_than_the_column_is_refused(text: str) -> None:
    """A comparison that could never hold is a mistake, and said to be one."""
    with pytest.raises(SettingsError, match=r"position 1: column .* cannot be compared with that") as caught:
        parse_where(text).apply(TABLE)
    assert "soon" not in str(caught.value)
