"""Against the real service, in a process of its own, over a real store."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.clients import KINDS, ROWS, SCORES, Kind, call, live_service, published
from support.publish import bits
from support.servers import ValkeyProcess, start_valkey
from support.services import serve_process

from shared.client.attempts import ClientPolicy
from shared.client.clients import AsyncForescoreClient, ForescoreClient
from shared.client.freshness import CacheStatus
from shared.client.problems import (
    ForescoreProblem,
    InvalidId,
    NotCached,
    Problem,
    RejectedFeatures,
    Unavailable,
    UnknownEntity,
)
from shared.client.results import Model, Score, Snapshots
from shared.client.wire import Item
from shared.scorer import Scorer

ODD = [
    "kg/s",
    "a?b",
    "100%",
    "%2E",
    "a#b",
    "a b",
    " a ",
    "+7",
    "007",
    "null",
    ".",
    "...",
    "a/../b",
    "//",
    "\u65e5",
    "\\",
]
BAD = {"visits": 1, "returns": 0}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess, purchase_scorer: Scorer) -> Iterator[str]:
    """A service that has the four purchase rows, and one more under each odd id, and takes at most 600 items."""
    rows = ROWS | {entity_id: ROWS[str(place % 4)] for place, entity_id in enumerate(ODD)}
    folder = tmp_path_factory.mktemp("live")
    with live_service(folder, valkey, purchase_scorer, rows, FORESCORE_SERVICE__MAX_ITEMS="600") as url:
        yield url


def both(url: str, method: str, *arguments: Any) -> tuple[Any, Any]:
    """What the two clients say, with the second that may have passed between them taken out."""
    first, second = (call(kind, url, method, *arguments, timeout=30) for kind in KINDS)
    return _ageless(first), _ageless(second)


def _ageless(result: Any) -> Any:
    match result:
        case list():
            return [_ageless(one) for one in result]
        case Score():
            return replace(result, age_seconds=0)
        case Problem():
            return replace(result, error_id=None)
        case Snapshots():
            return replace(result, snapshots=[replace(one, age_seconds=0) for one in result.snapshots])
    return result


def test_known_rows_have_their_known_scores(kind: Kind, url: str) -> None:
    """0.8581, 0.31, 0.7311 and 0.69, from the cache, with their whole origin."""
    scores = [call(kind, url, "score", entity_id) for entity_id in SCORES]

    assert [round(one.scores["buys"], 4) for one in scores] == list(SCORES.values())
    assert {(one.model, one.model_version, one.snapshot, one.source, one.parity) for one in scores} == {
        ("purchase", "1", "1-A", "cache", "exact")
    }
    assert all(one.data_as_of is not None and one.scored_at.tzinfo is not None for one in scores)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("score", ("0",)),
        ("score", (0,)),
        ("score", ("kg/s",)),
        ("score_many", (["0", "nobody", 1, Item("x", ROWS["2"]), Item("y", BAD)],)),
        ("model", ()),
        ("snapshots", ()),
        ("ready", ()),
    ],
)
def test_both_clients_say_the_same(url: str, method: str, arguments: tuple[Any, ...]) -> None:
    """One core: what one client returns, the other does."""
    first, second = both(url, method, *arguments)

    if method == "score_many":  # scored now, a moment apart
        assert bits(first[3].scores["buys"]) == bits(second[3].scores["buys"])
        first, second = ([*result[:3], *result[4:]] for result in (first, second))
    assert first == second


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("score", ("nobody",)),
        ("score", ("",)),
        ("put_features", ("x", BAD)),
        ("put_features", ("x", {"z": 1})),
    ],
)
def test_both_clients_raise_the_same(url: str, method: str, arguments: tuple[Any, ...]) -> None:
    """The same class with the same words, and the id under which the log has the request."""
    raised: list[ForescoreProblem] = []
    for kind in KINDS:
        with pytest.raises(ForescoreProblem) as caught:
            call(kind, url, method, *arguments)
        raised.append(caught.value)

    assert type(raised[0]) is type(raised[1])
    assert _ageless(raised[0].problem) == _ageless(raised[1].problem)
    assert len({one.error_id for one in raised} - {None}) == 2


@pytest.mark.parametrize("entity_id", ODD)
def test_an_odd_id_is_that_entity(kind: Kind, url: str, entity_id: str) -> None:
    """Each id comes back as it was asked, alone and in bulk, with its own score."""
    expected = SCORES[str(ODD.index(entity_id) % 4)]

    alone = call(kind, url, "score", entity_id)
    (bulk,) = call(kind, url, "score_many", [entity_id])
    assert (alone.entity_id, round(alone.scores["buys"], 4)) == (entity_id, expected)
    assert (bulk.entity_id, bulk.scores) == (entity_id, alone.scores)


def test_an_unknown_entity_is_a_lookup_error(kind: Kind, url: str) -> None:
    """No score and no features: LookupError, with the id of the request."""
    with pytest.raises(LookupError) as raised:
        call(kind, url, "score", "nobody")
    assert isinstance(raised.value, UnknownEntity)
    assert raised.value.error_id


@pytest.mark.parametrize("entity_id", ["", "   ", "a\nb", "\x00", "x" * 257, "\ud800"])
def test_an_id_that_cannot_be_is_invalid(kind: Kind, url: str, entity_id: str) -> None:
    """Whoever finds it, client or service, it is the same error, alone and in bulk."""
    with pytest.raises(InvalidId):
        call(kind, url, "score", entity_id)
    (problem,) = call(kind, url, "score_many", [entity_id])
    assert (problem.status, problem.type) == (422, "invalid-entity-id")


def test_rejected_features_say_which(kind: Kind, url: str) -> None:
    """Code and field name the rule and the feature, by every call that takes features."""
    with pytest.raises(RejectedFeatures) as raised:
        call(kind, url, "put_features", "new", BAD)
    (problem,) = call(kind, url, "score_many", [Item("new", BAD)])

    assert (raised.value.code, raised.value.field) == ("missing", "basket")
    assert (problem.code, problem.field, problem.entity_id) == ("missing", "basket", "new")


@pytest.mark.parametrize("entity_id", ["new", "new/..", "..", "%"])
def test_features_that_are_put_are_scored(kind: Kind, url: str, entity_id: str) -> None:
    """An entity that the batch has not seen has a score once its features are there, under any id."""
    entity_id = entity_id if entity_id == ".." else f"{kind} {entity_id}"
    call(kind, url, "put_features", entity_id, ROWS["1"])

    score = call(kind, url, "score", entity_id)
    assert (score.entity_id, score.scores) == (entity_id, {"buys": 0.3100255})


def test_bulk_in_slabs_is_bulk_in_one(kind: Kind, url: str) -> None:
    """1,300 items in slabs that this service takes or has to be asked for in halves: each its own result, in order."""
    ids = [str(number % 5) for number in range(1300)]
    policy = ClientPolicy(slab_items=1000)

    results = call(kind, url, "score_many", ids, options={"policy": policy}, timeout=30)
    assert [one.entity_id for one in results] == ids
    assert {(one.entity_id, getattr(one, "type", None) or round(one.scores["buys"], 4)) for one in results} == {
        *SCORES.items(),
        ("4", "unknown-entity"),
    }


def test_a_body_beyond_the_limit_is_cut(kind: Kind, url: str) -> None:
    """Items with many bytes are sent in bodies that the service takes, though their number would be few enough."""
    items = [Item("x" * 250, {"visits": f"{' ' * 5000}1", "returns": 0, "basket": 2}) for _ in range(400)]

    results = call(kind, url, "score_many", items, timeout=30)
    assert {round(one.scores["buys"], 4) for one in results} == {0.8581}
    assert len(results) == 400


def test_the_contract_says_what_the_model_takes(kind: Kind, url: str) -> None:
    """Features in the schema's order, and the names of the scores."""
    model = call(kind, url, "model")

    assert isinstance(model, Model)
    assert (model.model, model.model_version, model.entity) == ("purchase", "1", "customer_id")
    assert [feature["name"] for feature in model.features] == ["visits", "returns", "basket"]
    assert model.outputs[0]["scores"] == ["buys"]


def test_the_snapshots_say_which_is_served(kind: Kind, url: str) -> None:
    """The active snapshot is named, with its counts."""
    listed = call(kind, url, "snapshots")

    assert (listed.model, listed.active) == ("purchase", "1-A")
    assert [(one.snapshot, one.active, one.scored) for one in listed.snapshots] == [("1-A", True, len(ROWS) + len(ODD))]


def test_a_ready_service_is_true(kind: Kind, url: str) -> None:
    """``if client.ready()`` reads as it works."""
    assert call(kind, url, "ready")


def test_one_client_serves_many_tasks(url: str) -> None:
    """Fifty calls at once through one client: each has its own entity's answer."""

    async def ask() -> list[Score]:
        async with AsyncForescoreClient(url, timeout=30) as client:
            return await asyncio.gather(*(client.score(str(number % 4)) for number in range(50)))

    scores = asyncio.run(ask())
    assert [round(one.scores["buys"], 4) for one in scores] == [SCORES[str(number % 4)] for number in range(50)]


def test_a_cancelled_call_leaves_the_client_whole(url: str) -> None:
    """Callers that go away cost the others nothing: the same client answers on."""

    async def ask() -> Score:
        async with AsyncForescoreClient(url, timeout=30) as client:
            leaving = [asyncio.create_task(client.score("1")) for _ in range(30)]
            await asyncio.sleep(0)
            for task in leaving:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
            return await client.score("0")

    assert asyncio.run(ask()).entity_id == "0"


def test_a_service_in_bad_times(tmp_path: Path, purchase_scorer: Scorer) -> None:
    """A call made while the service loads is answered by the same call; one made while it has no store says so."""
    patient = ClientPolicy(attempts=1000)
    with start_valkey(tmp_path) as valkey:
        environment = published(valkey, purchase_scorer, ROWS)
        with (
            serve_process(tmp_path, str(purchase_scorer.bundle.path), "--port", "0", **environment) as server,
            ForescoreClient(server.url(), timeout=60, policy=patient) as client,
        ):
            assert client.score("0").source == "cache"

            valkey.kill()
            with pytest.raises(Unavailable) as raised:
                call("sync", server.url(), "score", "0", options={"policy": ClientPolicy(attempts=1)}, timeout=30)
            assert raised.value.retry_after == 1


def test_wishes_and_choices_hold_against_the_service(kind: Kind, url: str) -> None:
    """Fresh, cached, by version, by snapshot, and known already."""
    entity = f"{kind} fresh"
    call(kind, url, "put_features", entity, ROWS["1"])
    with pytest.raises(NotCached):
        call(kind, url, "score", entity, only_if_cached=True)
    cached = call(kind, url, "score", "0", only_if_cached=True)
    again = call(kind, url, "score", "0", known=cached)

    assert cached.cache_status == CacheStatus()
    assert (again.scores, again.etag) == (cached.scores, cached.etag)
    assert call(kind, url, "score", entity, no_cache=True).source == "online"
    assert call(kind, url, "score", "0", model_version="1").snapshot == "1-A"
    assert call(kind, url, "score", "0", snapshot="1-A").scores == cached.scores
    (missing,) = call(kind, url, "score_many", ["nobody"], only_if_cached=True)
    assert (missing.status, missing.type) == (504, "not-cached")
