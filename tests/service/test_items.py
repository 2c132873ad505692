import pytest

from service.items import Ask, Refused, parse_features, parse_items
from shared.errors import BadRequest, InvalidEntityId, RowRejected, TooManyItems

NAMES = frozenset({"visits", "returns"})


def _parse(*items: object) -> list[Ask | Refused]:
    return parse_items({"items": list(items)}, limit=10, features=NAMES)


@pytest.mark.parametrize("document", [None, [], {}, {"items": {}}, {"items": [], "more": 1}, {"item": []}, "items"])
def test_a_body_of_another_shape_is_refused_as_a_whole(document: object) -> None:
    """What the request is about must be clear before any of it is done."""
    with pytest.raises(BadRequest):
        parse_items(document, limit=10, features=NAMES)


def test_the_limit_counts_items() -> None:
    """Ten are ten, eleven are refused before any of them is looked at."""
    assert len(_parse(*[{"entity_id": "a"}] * 10)) == 10
    with pytest.raises(TooManyItems):
        _parse(*[{"entity_id": "a"}] * 11)


def test_an_item_asks_for_an_entity_for_features_or_for_both() -> None:
    """Ids are put into their written form, features are left as they are."""
    row = {"visits": 1}
    assert _parse({"entity_id": 5}, {"features": row}, {"entity_id": "5", "features": row}) == [
        Ask(entity_id="5"),
        Ask(entity_id=None, features=row),
        Ask(entity_id="5", features=row),
    ]


@pytest.mark.parametrize("item", [None, 3, "a", [], {}, {"id": "a"}, {"entity_id": "a", "x": 1}, {"features": None}])
def test_an_item_of_another_shape_costs_itself(item: object) -> None:
    """Its neighbours are asked all the same."""
    refused, other = _parse(item, {"entity_id": "b"})

    assert isinstance(refused, Refused)
    assert isinstance(refused.error, BadRequest)
    assert other == Ask(entity_id="b")


@pytest.mark.parametrize("entity_id", [None, 1.5, 2.0, True, [], {}, "", "  ", "a\nb", "x" * 257])
def test_an_id_that_cannot_be_costs_its_item(entity_id: object) -> None:
    """No id is guessed from a value that is none."""
    (refused,) = _parse({"entity_id": entity_id})

    assert isinstance(refused, Refused)
    assert isinstance(refused.error, InvalidEntityId)
    assert refused.entity_id is None


def test_an_unknown_feature_is_named_if_it_can_be() -> None:
    """The name is told, bounded, and only if it prints: it comes from the caller."""
    for name, told in (("vists", "vists"), ("x" * 500, "x" * 100), ("a\nb", None), ("", "")):
        with pytest.raises(RowRejected) as caught:
            parse_features({"visits": 1, name: 2}, NAMES)
        assert (caught.value.code, caught.value.field) == ("unknown_feature", told)


def test_an_item_with_an_unknown_feature_keeps_its_id() -> None:
    """The caller finds the item again by the id that he gave."""
    (refused,) = _parse({"entity_id": 7, "features": {"z": 1}})

    assert isinstance(refused, Refused)
    assert refused.entity_id == "7"
