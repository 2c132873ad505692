import asyncio
import json
from typing import Any

import httpx2
import pytest
from support.clients import (
    URL,
    Kind,
    Script,
    StandIn,
    answer,
    played,
    problem_body,
    refusal,
    score_body,
)

from shared.client.attempts import ClientPolicy
from shared.client.clients import AsyncForescoreClient
from shared.client.problems import Unauthorized, UnexpectedAnswer, UnknownEntity
from shared.client.wire import Item


def bulk(request: httpx2.Request) -> httpx2.Response:
    """A service that scores everything but what is called bad."""
    items = json.loads(request.content)["items"]
    return answer(
        {"snapshot": "1-A", "results": [_one(item.get("entity_id")) for item in items]}, x_request_id="c0ffee"
    )


def _one(entity_id: str | None) -> dict[str, Any]:
    if entity_id == "bad":
        error = problem_body("unknown-entity", 404)
        del error["instance"]
        return {"entity_id": entity_id, "error": error}
    return score_body(entity_id)


def counting(script: list[int]) -> Any:
    """``bulk``, with the number of items of each request written down."""

    def counted(request: httpx2.Request) -> httpx2.Response:
        script.append(len(json.loads(request.content)["items"]))
        return bulk(request)

    return counted


def test_bulk_is_cut_into_slabs_and_stays_in_order(kind: Kind) -> None:
    """1,203 ids make requests of at most 500, one result for each id in its place."""
    sizes: list[int] = []

    results = played(kind, counting(sizes), "score_many", range(1203))
    assert sorted(sizes) == [203, 500, 500]
    assert [one.entity_id for one in results] == [str(number) for number in range(1203)]


def test_bulk_stays_below_a_bodys_limit(kind: Kind) -> None:
    """Items with many features make smaller slabs."""
    sizes: list[int] = []
    items = [Item(number, {"text": "x" * 1000}) for number in range(10)]

    results = played(kind, counting(sizes), "score_many", items, policy=ClientPolicy(slab_bytes=4000))
    assert sorted(sizes) == [1, 3, 3, 3]
    assert len(results) == 10


def test_bulk_of_nothing_asks_nothing(kind: Kind) -> None:
    """No items, no request."""
    script = Script([answer()])

    assert played(kind, script, "score_many", []) == []
    assert script.asked == []


def test_a_bad_item_costs_itself(kind: Kind) -> None:
    """What the service refuses and what cannot be sent are Problems in their places; their neighbours have scores."""
    items = ["a", "bad", "\ud800", Item("b", {"x": float("inf")}), Item(features={"x": 1}), 7]

    results = played(kind, bulk, "score_many", items)
    assert [one.entity_id for one in results] == ["a", "bad", None, "b", None, "7"]
    assert [getattr(one, "type", "score") for one in results] == [
        "score",
        "unknown-entity",
        "invalid-entity-id",
        "row-rejected",
        "score",
        "score",
    ]
    assert (results[1].error_id, results[3].field) == ("c0ffee", "x")
    with pytest.raises(UnknownEntity):
        raise results[1].error()


def test_bulk_of_what_cannot_be_sent_asks_nothing(kind: Kind) -> None:
    """Where no item can be sent there is no request, and each has its problem."""
    script = Script([answer()])

    assert [one.type for one in played(kind, script, "score_many", ["\ud800"])] == ["invalid-entity-id"]
    assert script.asked == []


def test_a_service_with_smaller_limits_is_asked_in_halves(kind: Kind) -> None:
    """413 says that the slab is too large for this service: it is halved until it fits, in order."""
    sizes: list[int] = []

    def small(request: httpx2.Request) -> httpx2.Response:
        items = json.loads(request.content)["items"]
        return refusal("too-many-items", 413) if len(items) > 3 else counting(sizes)(request)

    results = played(kind, small, "score_many", range(10))
    assert sizes == [2, 3, 2, 3]
    assert [one.entity_id for one in results] == [str(number) for number in range(10)]


def test_one_item_too_large_costs_itself(kind: Kind) -> None:
    """An item that the service would not take alone is a Problem, its neighbours are scored."""

    def narrow(request: httpx2.Request) -> httpx2.Response:
        return refusal("body-too-large", 413) if len(request.content) > 500 else bulk(request)

    items = [Item("a", {"x": 1}), Item("b", {"x": "y" * 1000}), Item("c", {"x": 1})]
    results = played(kind, narrow, "score_many", items)
    assert [(one.entity_id, getattr(one, "status", 200)) for one in results] == [("a", 200), ("b", 413), ("c", 200)]


def test_a_request_of_bulk_that_fails_raises(kind: Kind) -> None:
    """Where a whole request fails there is nothing to say of its items, and the call ends with that error."""
    script = Script([refusal("unauthorized", 401)])

    with pytest.raises(Unauthorized):
        played(kind, script, "score_many", range(2000))


def test_a_request_of_bulk_is_tried_again(kind: Kind) -> None:
    """Asking twice changes nothing, so POST is tried again as GET is."""
    asked: list[int] = []

    def flaky(request: httpx2.Request) -> httpx2.Response:
        asked.append(1)
        return refusal("overloaded", 503, later="1") if len(asked) == 1 else bulk(request)

    stand_in = StandIn()
    assert len(played(kind, flaky, "score_many", ["a", "b"], stand_in=stand_in)) == 2
    assert stand_in.pauses == [1]


@pytest.mark.parametrize("results", [[], [score_body("a")] * 2, [score_body("b")], [None], "x", [{"error": {}}]])
def test_results_that_do_not_match_are_no_answer(kind: Kind, results: object) -> None:
    """One result for each item, about that item: anything else would give somebody another entity's score."""
    with pytest.raises(UnexpectedAnswer):
        played(kind, Script([answer({"snapshot": None, "results": results})]), "score_many", ["a"])


def test_a_single_id_is_no_list(kind: Kind) -> None:
    """The letters of an id are not asked for one by one."""
    with pytest.raises(TypeError, match="for one id there is score"):
        played(kind, bulk, "score_many", "C0042")


def test_a_mistake_in_an_item_is_raised(kind: Kind) -> None:
    """What the program did wrong is raised as it is, and not hidden in a group."""
    with pytest.raises(TypeError, match="an entity id is text or an integer, not float"):
        played(kind, bulk, "score_many", [1, 2.0])


def test_the_asynchronous_client_has_a_bounded_number_of_requests_under_way() -> None:
    """Ten slabs, three at a time: the fourth waits for one of them, and the order is that of the items."""
    under_way, most = 0, 0

    async def slow(request: httpx2.Request) -> httpx2.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(len(json.loads(request.content)["items"]) % 3 + 3):  # so that they end in another order
            await asyncio.sleep(0)
        under_way -= 1
        return bulk(request)

    async def ask() -> list[Any]:
        policy = ClientPolicy(slab_items=2, concurrency=3)
        async with AsyncForescoreClient(URL, policy=policy, transport=httpx2.MockTransport(slow)) as client:
            return list(await client.score_many(range(19)))

    results = asyncio.run(ask())
    assert most == 3
    assert [one.entity_id for one in results] == [str(number) for number in range(19)]
