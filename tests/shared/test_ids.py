"""The written form of an entity id, value by value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.codes import Code
from shared.ids import MAX_ID_BYTES, id_text, is_valid_id


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),  # B1: an integer of any transport and its text are one entity
        ("5", "5"),
        (-5, "-5"),
        (0, "0"),
        (2**53 + 1, "9007199254740993"),
        (2**64 - 1, "18446744073709551615"),
        ("007", "007"),  # B4: text stays text
        ("00060", "00060"),
        ("a-1", "a-1"),  # B3: one form, exact
        ("A-1", "A-1"),
        (" a ", " a "),
        ("+5", "+5"),
        ("5.0", "5.0"),
        ("null", "null"),
        ("NaN", "NaN"),
        ("true", "true"),
        ("kg/s", "kg/s"),  # B10: whatever a key or a path would stumble on
        ("a:b", "a:b"),
        ("{a}*?[b]", "{a}*?[b]"),
        ("%2F", "%2F"),
        ("\u00e9", "\u00e9"),
        ("e\u0301", "e\u0301"),
        ("\U0001f600", "\U0001f600"),
        ("x" * MAX_ID_BYTES, "x" * MAX_ID_BYTES),
    ],
)
def test_the_written_form_is_exact(value: object, text: str) -> None:
    """An id is taken as it is: no zero, blank, sign or letter of it changes."""
    assert id_text(value) == text


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        " \t",
        "\u2003",
        "a\x00",
        "\x00",
        "a\nb",
        "a\x7f",
        "a\x85b",
        "\ud800",
        "x" * (MAX_ID_BYTES + 1),
        "x" * 2048,
        "\u00e9" * (MAX_ID_BYTES // 2 + 1),
        5.0,
        True,
        b"5",
        ["5"],
        {"id": "5"},
        10**300,
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_what_cannot_be_an_id_is_refused(value: object) -> None:
    """B13: nothing is guessed, cut or cleaned to make an id of it."""
    assert id_text(value) is Code.INVALID_ID


def test_an_integer_too_long_to_be_written_is_refused() -> None:
    """B6: Python itself refuses to write such an integer; here it is a refused id and no exception."""
    assert id_text(1 << 20_000) is Code.INVALID_ID


def test_null_is_no_id() -> None:
    """A row without an id is told apart from one with a bad id."""
    assert id_text(None) is Code.NULL_ID


@given(st.text(st.characters(), max_size=300))
def test_any_text_is_taken_exactly_or_refused(text: str) -> None:
    """B10: there is no text that becomes another id."""
    found = id_text(text)
    assert found == text or found is Code.INVALID_ID
    assert (found == text) == is_valid_id(text)


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=64))
def test_any_short_visible_text_is_an_id(text: str) -> None:
    """Letters, digits, marks and signs of any script are taken."""
    assert id_text(text) == text


@given(st.integers(-(10**250), 10**250))
def test_any_integer_is_its_decimals(number: int) -> None:
    """An integer and its decimal text are one entity, whatever its size."""
    assert id_text(number) == id_text(str(number)) == str(number)


@given(st.text(max_size=8), st.text(max_size=8))
def test_two_texts_are_two_entities(one: str, other: str) -> None:
    """No two texts share an id."""
    assert one == other or id_text(one) != id_text(other) or id_text(one) is Code.INVALID_ID
