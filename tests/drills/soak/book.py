"""The requests of a soak, and what every answer must be: the truth that callers check by."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from drills.world import KNOWN, UNSEEN, World, live_row

LINES = 54_000
"""With so many, whoever is asked for as unseen is so: a closed loop and a time between two promotions ask for each of
the world's unseen about once. Whom a snapshot has scored online is a hit from then on, which would make the second half
of that time, and a loop's capacity, a lighter load than the first half."""
SHARES = {"hit": 60, "miss": 15, "list": 15, "bad": 10}
BAD: tuple[tuple[str, str, str | None, int], ...] = (
    ("GET", "/score/nobody", None, 404),
    ("GET", f"/score/{'x' * 600}", None, 422),
    ("GET", "/nothing", None, 404),
    ("DELETE", "/score/K0", None, 405),
    ("POST", "/score", "{", 400),
    ("POST", "/score", '{"items": 1}', 400),
)


def write_book(path: Path) -> Path:
    """As many requests as there are lines, in the shares above and in an order of no pattern, the same each time."""
    dice = random.Random(7)  # noqa: S311 - for an order
    kinds = dice.choices(list(SHARES), weights=list(SHARES.values()), k=LINES)
    path.write_bytes(orjson.dumps([_request(kind, number) for number, kind in enumerate(kinds)]))
    return path


def write_truth(path: Path, world: World) -> Path:
    """The right score of everybody in each snapshot so far, and online; replaced at once."""
    told: dict[str, Any] = {"snapshots": {}, "live": {}}
    for snapshot, edition in list(world.snapshots.items()):
        scores = world.batch_scores(snapshot.partition("-")[0], edition)
        told["snapshots"][snapshot] = {entity: float(str(score)) for entity, score in scores.items()}
    told["live"] = {entity: float(str(world.live_score("1", entity))) for entity in _live()}
    fresh = path.with_suffix(".new")
    fresh.write_bytes(orjson.dumps(told))
    fresh.replace(path)
    return path


def _live() -> Iterator[str]:
    yield from (entity for entity in KNOWN if entity[0] == "E")
    yield from (f"U{number}" for number in range(UNSEEN))


def _request(kind: str, number: int) -> dict[str, Any]:
    known, unseen = KNOWN[number % len(KNOWN)], f"U{number % UNSEEN}"
    match kind:
        case "hit":
            return _told("GET", f"/score/{known}", None, [known], 200)
        case "miss":
            return _told("GET", f"/score/{unseen}", None, [unseen], 200)
        case "list":
            given = {"entity_id": unseen, "features": live_row(unseen)}
            items = [{"entity_id": known}, given, {"entity_id": KNOWN[0]}]
            body = orjson.dumps({"items": items}).decode()
            return _told("POST", "/score", body, [known, unseen, KNOWN[0]], 200)
        case _:
            method, path, body, status = BAD[number % len(BAD)]
            return _told(method, path, body, [], status)


def _told(method: str, path: str, body: str | None, entities: list[str], status: int) -> dict[str, Any]:
    text = "" if body is None else body
    head = f"{method} {path} HTTP/1.1\r\nHost: soak\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    return {"text": f"{head}\r\n{text}", "entities": entities, "status": status}
