"""The accounting."""

import pytest

from batch_job.counts import Counts, RejectionCount, rejection_counts, total
from shared.errors import AccountingBroken

MISSING = RejectionCount(code="missing", field="x", rows=1)


@pytest.mark.parametrize(
    "counts",
    [
        Counts(input=4, scored=1, rejected=1, duplicate=1, rejections=(MISSING,)),
        Counts(input=3, scored=1, rejected=1, duplicate=1),
        Counts(input=2, scored=1, rejected=0, duplicate=1, rejections=(MISSING,)),
    ],
)
def test_rows_that_do_not_add_up_are_an_error(counts: Counts) -> None:
    """A row that is in no count, and a rejection without a reason, stop the run."""
    with pytest.raises(AccountingBroken, match="parts: "):
        counts.require_balanced("parts")


def test_counts_that_add_up_pass() -> None:
    """input = scored + rejected + duplicate."""
    counts = Counts(input=3, scored=1, rejected=1, duplicate=1, rejections=(MISSING,))
    assert counts.require_balanced("parts") is counts


def test_reasons_are_counted_the_most_frequent_first() -> None:
    """Codes and fields are counted together, in an order that does not depend on the rows'."""
    reasons = rejection_counts([("b", "x"), ("a", None), ("b", "x"), ("a", "y")])
    assert list(map(str, reasons)) == ["2 b in x", "1 a", "1 a in y"]


def test_the_total_of_parts() -> None:
    """Counts and reasons of several parts add up."""
    part = Counts(input=3, scored=1, rejected=1, duplicate=1, rejections=(MISSING,))
    assert total([part, part]) == Counts(
        input=6, scored=2, rejected=2, duplicate=2, rejections=(RejectionCount(code="missing", field="x", rows=2),)
    )
    assert total([]) == Counts()
