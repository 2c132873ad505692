"""How long a caller waits, as the lane and the routes read it."""

import pytest

from service.patience import waits_for


@pytest.mark.parametrize(
    ("told", "patient"),
    [("1", True), ("0.161", True), ("0.160", False), ("0", False), ("soon", False), ("1e3", False)],
)
def test_the_lane_takes_who_waits_longer_than_a_look_up(told: str, patient: bool) -> None:  # noqa: FBT001 - a case
    """All others go where the deadline is enforced, or where a time that cannot be is refused."""
    assert waits_for(told, 160) is patient
