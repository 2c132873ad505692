"""ULIDs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.ulid import ulid, ulid_milliseconds


def test_the_reference_moment() -> None:
    """The time part of 1469918176385 ms is 01ARYZ6S41."""
    assert ulid(1469918176385, bytes(10)) == "01ARYZ6S41" + "0" * 16


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_ulids_sort_as_their_moments_do(first: int, second: int, entropy: bytes) -> None:
    """Text order is time order."""
    assert (ulid(first, entropy) < ulid(second, entropy)) == (first < second)


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_a_ulid_has_26_characters_of_the_alphabet(moment: int, entropy: bytes) -> None:
    """26 characters, without I, L, O and U."""
    text = ulid(moment, entropy)
    assert len(text) == 26
    assert set(text) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")


@pytest.mark.parametrize(("moment", "entropy"), [(-1, bytes(10)), (2**48, bytes(10)), (0, bytes(9))])
def test_what_does_not_fit_is_refused(moment: int, entropy: bytes) -> None:
    """A moment beyond 48 bits or another amount of randomness is an error."""
    with pytest.raises(ValueError, match="a ULID"):
        ulid(moment, entropy)


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_the_moment_is_read_back(moment: int, entropy: bytes) -> None:
    """A ULID tells the millisecond that it was made of."""
    assert ulid_milliseconds(ulid(moment, entropy)) == moment


@pytest.mark.parametrize("text", ["", "A", "I" * 26, "0" * 25, "0" * 27, "01arz3ndektsv4rrffq69g5fav"])
def test_what_is_no_ulid_has_no_moment(text: str) -> None:
    """Another length or alphabet is no ULID."""
    assert ulid_milliseconds(text) is None
