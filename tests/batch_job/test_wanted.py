"""Which of the listed ids the table has."""

import pyarrow as pa

from batch_job.wanted import Wanted


def test_what_was_not_seen_is_missing() -> None:
    """An id counts once, however often it is listed or seen; nulls are none."""
    wanted = Wanted(pa.array(["a", "b", "b", "c"]), whole=True)
    assert wanted.missing() == 3
    wanted.see(pa.array(["x", None, "b", "b"]))
    wanted.see(pa.array(["a"]))
    wanted.see(pa.array([], pa.string()))
    assert wanted.missing() == 1


def test_without_a_list_nothing_is_missing() -> None:
    """None says that nothing was asked, or that not all rows were read; it is not 0."""
    assert Wanted(None, whole=True).missing() is None
    assert Wanted(pa.array(["a"]), whole=False).missing() is None
