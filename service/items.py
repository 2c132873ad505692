"""What a caller asks for, parsed once: each item is a question, or the reason why it is none."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from service.entity import checked
from shared.codes import Code
from shared.errors import BadRequest, RequestError, RowRejected, TooManyItems

Row = Mapping[str, object]

_KEYS = frozenset({"entity_id", "features"})
_SHAPE = 'an item is {"entity_id": ...}, {"features": {...}} or both'
MAX_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question. With ``features`` it is about these; without, about the entity as it is known here."""

    entity_id: str | None
    features: Row | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An item that is no question; ``entity_id`` where that much could be read."""

    entity_id: str | None
    error: RequestError


def parse_items(document: object, *, limit: int, features: Collection[str]) -> list[Ask | Refused]:
    """The items of ``POST /score``. BadRequest and TooManyItems are about the whole; the rest costs one item."""
    items = document.get("items") if isinstance(document, dict) and document.keys() == {"items"} else None
    if not isinstance(items, list):
        raise BadRequest('the body is {"items": [...]}; see /docs')
    if len(items) > limit:
        raise TooManyItems(f"more than {limit} items (FORESCORE_SERVICE__MAX_ITEMS); send several requests")
    return [_parse_item(item, features) for item in items]


def parse_single(document: object, features: Collection[str]) -> Ask | None:
    """The one item of ``POST /score``, if it is the only one and brings its features; else None, right or not."""
    items = document.get("items") if isinstance(document, dict) and len(document) == 1 else None
    if not isinstance(items, list) or len(items) != 1:
        return None
    ask = _parse_item(items[0], features)
    return ask if isinstance(ask, Ask) and ask.features is not None else None


def parse_features(value: object, names: Collection[str]) -> Row:
    """An object of feature names and values; RowRejected if it names a feature that the schema does not have."""
    if not isinstance(value, dict):
        raise BadRequest("features is an object: the name of each feature and its value")
    for name in value:
        if name not in names:
            raise RowRejected(
                "the schema has no feature of that name; GET /model lists them",
                code=Code.UNKNOWN_FEATURE.text,
                field=_tellable(name),
            )
    return value


def _parse_item(item: object, names: Collection[str]) -> Ask | Refused:
    entity_id: str | None = None
    try:
        if not isinstance(item, dict) or not item or item.keys() - _KEYS:
            raise BadRequest(_SHAPE)
        if "entity_id" in item:
            entity_id = checked(item["entity_id"])
        features = parse_features(item["features"], names) if "features" in item else None
    except RequestError as error:
        return Refused(entity_id=entity_id, error=error)
    return Ask(entity_id=entity_id, features=features)


def _tellable(name: str) -> str | None:
    return name[:MAX_NAME] if name.isprintable() else None
