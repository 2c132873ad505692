import math
from datetime import date
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from shared.codes import Code
from shared.exact_json import dumps, loads
from shared.payload import payload_of, plain_value, row_of, table_payloads
from shared.rules import boolean_rule, categorical_rule, numeric_rule
from shared.schema import Boolean, Categorical, Numeric

RULES = {
    "numeric": numeric_rule(Numeric("x", missing="mean")),
    "boolean": boolean_rule(Boolean("x", missing="indicator")),
    "text": categorical_rule(Categorical("x"), ("", "a", "7", "inf", "1.5")),
    "integers": categorical_rule(Categorical("x"), (7, 8, 2**62)),
}
VALUES = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(),
    some.sampled_from([7, 8, 2**62, 2**53, 2**70, "7", "7.0", "", " 7 ", "inf", "NaN", "true", Decimal("7.0")]),
    some.floats(),
    some.floats(width=32).map(np.float32),
    some.decimals(),
    some.decimals(places=2, min_value=-100, max_value=100),
    some.text(),
    some.dates(),
)


@given(VALUES)
@pytest.mark.parametrize("rule", RULES)
def test_a_value_means_the_same_by_way_of_json(rule: str, value: object) -> None:
    """What a rule takes from a table it takes from the payload, to the same bits."""
    direct = RULES[rule].decode(value)
    if isinstance(direct, Code):
        return  # its row is rejected, and never written
    kept = RULES[rule].decode(loads(dumps(plain_value(value))))
    assert (type(kept), np.float64(kept).tobytes()) == (type(direct), np.float64(direct).tobytes())


@pytest.mark.parametrize("value", [{"a": 1, "b": "x"}, {"a": 2**70}, {"a": [1.5, None, True]}, {"a": -0.0}, {}])
def test_what_is_written_reads_back_equal(value: dict[str, object]) -> None:
    """Features are kept as they were sent."""
    assert row_of(payload_of(value)) == value


@pytest.mark.parametrize("value", [math.inf, math.nan, [1, math.nan], [2**70, math.inf]])
def test_what_json_cannot_hold_has_no_payload(value: object) -> None:
    """It would be written as null, and be a missing value."""
    with pytest.raises(ValueError, match="JSON"):
        payload_of({"x": value})


@pytest.mark.parametrize("payload", [b"", b"[1]", b"\xff", b'{"a": NaN}', b"1", b"[" * 100_000])
def test_what_is_no_payload_has_no_row(payload: bytes) -> None:
    """Whoever wrote it, it harms nobody."""
    assert row_of(payload) is None


def test_a_table_becomes_one_payload_for_each_row() -> None:
    """In the order of the columns, without what is missing."""
    columns = {"x": [1.5, math.nan], "when": ["a", None], "v": [np.array([[1.0, 2.0]], np.float32), [1]]}

    assert list(table_payloads(columns)) == [b'{"x":1.5,"when":"a","v":[[1.0,2.0]]}', b'{"v":[1]}']


def test_a_value_that_no_rule_takes_is_left_alone() -> None:
    """It never comes here: the encoder has rejected its row."""
    assert plain_value(date(2026, 11, 30)) == date(2026, 11, 30)
