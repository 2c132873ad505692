import pytest

from benchmarks.bars import BARS, GROUPS, Bar
from benchmarks.results import Finding, Row, judged, number, table

AT_LEAST = Bar(key="hit-naive", group="hit", what="hits", unit="answers/s", reference="naive", limit=7)
AT_MOST = Bar(key="row-time", group="row", what="a row", unit="us", judged="value", sign="at most", limit=100)


@pytest.mark.parametrize(
    ("bar", "finding", "held"),
    [
        (AT_LEAST, Finding(key="hit-naive", value=70, reference=10), True),
        (AT_LEAST, Finding(key="hit-naive", value=69, reference=10), False),
        (AT_LEAST, Finding(key="hit-naive", value=70), False),
        (AT_LEAST, Finding(key="hit-naive", note="not installed"), False),
        (AT_MOST, Finding(key="row-time", value=100), True),
        (AT_MOST, Finding(key="row-time", value=101), False),
        (AT_MOST, Finding(key="row-time", value=1, counts=False), False),
    ],
)
def test_a_bar_is_held_by_a_number_that_reaches_it(bar: Bar, finding: Finding, *, held: bool) -> None:
    """A bar holds at its limit; without a number, a reference or the right engine it does not."""
    assert Row.of(bar, finding).held is held


def test_the_table_says_what_was_found_and_what_was_not() -> None:
    """Each row has its value, its ratio and its verdict, or the reason why there is no number."""
    text = table(
        judged(
            [Finding(key="post-bentoml", note="not installed"), Finding(key="hit-naive", value=15_000, reference=2_000)]
        )
    )

    first, second = text.splitlines()[2:4]
    assert "15,000 answers/s  2,000 (FastAPI + redis-py)  7.50   at least 7 times  held" in first
    assert "not installed" in second
    assert second.endswith("not held")


def test_every_bar_has_a_key_of_its_group() -> None:
    """Keys are unique, and begin with the group that measures them."""
    assert len({bar.key for bar in BARS}) == len(BARS)
    assert {bar.key.split("-")[0] for bar in BARS} == set(GROUPS)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (15_234.5, "15,234"), (0.0, "0"), (7.123, "7.12"), (0.0412, "0.0412"), (99.96, "100")],
)
def test_a_number_has_three_figures_that_count(value: float | None, text: str) -> None:
    """Numbers are told as exactly as they are known."""
    assert number(value) == text
