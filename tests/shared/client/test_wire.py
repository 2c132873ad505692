import json
import math
from itertools import pairwise
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.client.wire import MAX_ID_BYTES, Entry, Item, Unsendable, entry, features_json, id_text, in_path, slabs
from shared.ids import MAX_ID_BYTES as SERVICES_MAX_ID_BYTES
from shared.ids import id_text as services_id_text
from shared.ids import is_valid_id


@given(st.text(max_size=80).filter(is_valid_id))
def test_every_id_is_one_segment_that_reads_back(entity_id: str) -> None:
    """Whatever an id holds, it has no slash, no question mark and no dot segment in a path, and decodes to itself."""
    segment = in_path(id_text(entity_id))

    if segment is None:
        assert entity_id in {".", ".."}
    else:
        assert set(segment) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~%")
        assert unquote_to_bytes(segment).decode() == entity_id


@given(st.integers() | st.integers(min_value=-(2**63), max_value=2**63 - 1).map(str))
def test_an_integer_has_the_form_that_the_service_gives_it(entity_id: str | int) -> None:
    """5 and "5" are one entity, on this side as on that."""
    assert id_text(entity_id) == services_id_text(entity_id)


def test_a_numpy_integer_is_an_integer() -> None:
    """An id out of a data frame needs no conversion."""
    assert id_text(np.int64(5)) == "5"


@pytest.mark.parametrize("wrong", [True, 5.0, None, b"5", np.float64(5)])
def test_an_id_of_another_type_is_a_mistake(wrong: Any) -> None:
    """5.0 may have been 5 or 5.0: what is neither text nor an integer is refused, as by the service."""
    with pytest.raises(TypeError, match="an entity id is text or an integer"):
        id_text(wrong)


@pytest.mark.parametrize("wrong", ["\ud800", "a" * 257, "\u00e9" * 129, pytest.param(10**5000, id="digits")])
def test_an_id_that_cannot_be_sent_is_refused_here(wrong: str | int) -> None:
    """Half a surrogate pair has no bytes, and an id without end makes an address that no server reads."""
    with pytest.raises(Unsendable) as refused:
        id_text(wrong)
    assert (refused.value.problem.status, refused.value.problem.type) == (422, "invalid-entity-id")


@given(st.text(max_size=260) | st.text("\x00\x1f\x20\x7e\x7f\x9f\xa0a", max_size=5))
def test_no_id_that_the_service_takes_is_refused_here(entity_id: str) -> None:
    """The rules are the service's; the client applies those that decide whether an id can be sent."""
    try:
        id_text(entity_id)
    except Unsendable:
        assert not is_valid_id(entity_id)
    else:
        assert is_valid_id(entity_id) or not entity_id.strip()


def test_the_longest_id_is_the_services() -> None:
    """An id of the greatest length is sent."""
    assert id_text("a" * MAX_ID_BYTES)
    assert MAX_ID_BYTES == SERVICES_MAX_ID_BYTES


def test_values_are_sent_as_json_has_them() -> None:
    """Python's and NumPy's values of one meaning are sent alike; NaN, a missing value, is null."""
    python: dict[str, Any] = {"a": 1, "b": 0.1, "c": None, "d": "x", "e": True, "f": [1.0, None], "g": 2**70}
    numpy: dict[str, Any] = {
        "a": np.int32(1),
        "b": np.float64(0.1),
        "c": math.nan,
        "d": np.str_("x"),
        "e": np.bool_(1),
        "f": np.array([1, np.nan]),
        "g": 2**70,
    }

    assert features_json(python) == features_json(numpy)
    assert json.loads(features_json(python)) == python


def test_a_float32_is_sent_exactly() -> None:
    """The service turns what is sent back into the same 32 bits."""
    value = np.float32(0.1)

    assert np.float32(json.loads(features_json({"x": value}))["x"]) == value


@pytest.mark.parametrize("value", [math.inf, -math.inf, [1.0, math.inf], np.float32(np.inf)])
def test_an_infinite_value_is_rejected_as_the_service_would(value: object) -> None:
    """JSON cannot say infinity: the row is rejected here, by the same code, with the field and not the value."""
    with pytest.raises(Unsendable) as refused:
        features_json({"visits": 1, "basket": value})
    problem = refused.value.problem
    assert (problem.status, problem.type, problem.code, problem.field) == (422, "row-rejected", "not_finite", "basket")


def test_a_value_of_no_kind_is_a_mistake_that_names_its_feature() -> None:
    """A kind of value that no feature takes is a TypeError with the feature's name and without the value."""
    with pytest.raises(TypeError, match="feature basket: complex is no kind of feature value; send a number"):
        features_json({"basket": 4242j})


def test_an_empty_item_is_a_mistake() -> None:
    """An item names an entity, brings features, or both."""
    with pytest.raises(TypeError, match="an entity_id, features, or both"):
        Item()


def test_text_without_bytes_costs_its_own_item() -> None:
    """Half a surrogate pair in a feature would make the whole request unreadable, so it is not sent."""
    refused = entry(Item("a", {"name": "\udfff"}))

    assert refused.problem is not None
    assert (refused.problem.status, refused.problem.code) == (422, "wrong_type")


@given(
    st.lists(st.text("abc\u00e9", min_size=1, max_size=30), max_size=40),
    st.integers(min_value=1, max_value=7),
    st.integers(min_value=1, max_value=300),
)
def test_slabs_hold_every_item_once_in_order_within_the_limits(ids: list[str], most: int, most_bytes: int) -> None:
    """No slab has more items or bytes than allowed, but for an item that alone has more bytes."""
    cut = list(slabs(ids, most=most, most_bytes=most_bytes))

    assert [one.entity_id for slab in cut for one in slab] == ids
    assert all(1 <= len(slab) <= most for slab in cut)
    assert all(_size(slab) <= most_bytes or len(slab) == 1 for slab in cut)
    assert all(len(a) == most or _size([*a, b[0]]) > most_bytes for a, b in pairwise(cut))


def _size(slab: list[Entry]) -> int:
    return sum(len(one.content) + 1 for one in slab)
