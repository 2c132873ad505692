"""The way back."""

import pytest

from shared.snapshot import Flip
from shared.store.history import previous


def _flips(*steps: str) -> list[Flip]:
    """Newest first, out of steps in their order: ``A`` promotes A, ``<A`` rolls back to A."""
    return [
        Flip(
            snapshot=step.removeprefix("<"),
            at=0,
            by="t",
            action="rollback" if step.startswith("<") else "promote",
            forced=False,
            epoch=1,
        )
        for step in reversed(steps)
    ]


@pytest.mark.parametrize(
    ("steps", "usable", "expected"),
    [
        ([], "A", None),
        (["A"], "A", None),
        (["A", "B"], "AB", "A"),
        (["A", "B", "C", "<B"], "ABC", "A"),
        (["A", "B", "C", "<B", "<A"], "ABC", None),
        (["A", "B", "<A", "C"], "ABC", "A"),
        (["A", "B", "<A", "B"], "AB", "A"),
        (["A", "B", "C"], "AC", "A"),
        (["A", "B", "C"], "C", None),
        (["A", "B", "B"], "AB", "A"),
        (["A", "B", "A"], "AB", "B"),
        (["<A", "B"], "AB", "A"),
    ],
)
def test_rollback_leads_to_what_was_active_before(steps: list[str], usable: str, expected: str | None) -> None:
    """Promotions are undone one by one, and what cannot be used is stepped over."""
    assert previous(_flips(*steps), set(usable)) == expected
