from urllib.parse import quote

import pytest

from service.entity import checked, entity_of
from shared.errors import InvalidEntityId

ANY_TEXT = [
    "kg/s",
    "a:b",
    "{tag}*",
    "100%",
    "a b",
    " a ",
    "+7",
    "007",
    "null",
    "NaN",
    "A",
    "a",
    "\u00e9",
    "e\u0301",
    "\u65e5\u672c",
    "..",
    "?",
    "#",
    "\\",
]


def _scope(raw: bytes, root: str = "") -> dict[str, object]:
    return {"raw_path": raw, "root_path": root}


@pytest.mark.parametrize("entity_id", ANY_TEXT)
def test_any_text_comes_back_as_it_was_sent(entity_id: str) -> None:
    """Percent-encoding is undone exactly once, and nothing else is done to an id."""
    raw = f"/score/{quote(entity_id, safe='')}".encode()

    assert entity_of(_scope(raw), "/score/") == entity_id


def test_a_slash_may_be_written_as_it_is() -> None:
    """`/score/kg/s` and `/score/kg%2Fs` are the same entity."""
    assert entity_of(_scope(b"/score/kg/s"), "/score/") == "kg/s"


def test_the_root_path_is_no_part_of_the_id() -> None:
    """Behind a proxy that adds a prefix, the id stays the id."""
    assert entity_of(_scope(b"/api/score/7", root="/api"), "/score/") == "7"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"%20%20",
        b"a%00b",
        b"a%0Ab",
        b"a%C2%85b",
        b"%FF",
        b"%ED%A0%80",
        b"100%",
        b"%zz",
        b"%2",
        b"a" * 257,
        b"x" * 2048,
    ],
)
def test_what_cannot_be_an_id_is_refused(raw: bytes) -> None:
    """Empty, blank, control characters, bytes that are not UTF-8, broken escapes and long ids are never guessed at."""
    with pytest.raises(InvalidEntityId):
        entity_of(_scope(b"/score/" + raw), "/score/")


@pytest.mark.parametrize(
    ("value", "written"), [(5, "5"), ("5", "5"), (0, "0"), (-7, "-7"), (2**64 + 1, str(2**64 + 1))]
)
def test_an_integer_is_written_in_decimal(value: object, written: str) -> None:
    """5 in JSON and "5" are one entity, however large the number."""
    assert checked(value) == written


@pytest.mark.parametrize("value", [None, 5.0, float("inf"), True, [], {}])
def test_what_is_neither_text_nor_integer_should_be_sent_as_text(value: object) -> None:
    """5.0 may have been 5 or 5.0: the caller is told to say it in text."""
    with pytest.raises(InvalidEntityId, match="send it as text"):
        checked(value)
