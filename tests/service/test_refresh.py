"""What was scored together does not grow too old together."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from support.publish import publish
from support.servers import wait_until
from support.services import service_settings, serving

from service.refresh import AgeLimit
from shared.scorer import Scorer
from shared.settings import Settings
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

A = {"visits": 1, "returns": 0, "basket": 2}
B = {"visits": 0, "returns": 3, "basket": 1}
NOW = 1_800_000_000
DAY = 86_400
ENTITIES = tuple(f"C{number:04}" for number in range(200))
LIMIT = AgeLimit(seconds=DAY, spread=0.1)


def _metric(client: TestClient, line: str) -> float:
    found = [text for text in client.get("/metrics").text.splitlines() if text.startswith(f"{line} ")]
    return float(found[0].split()[-1]) if found else 0.0


def _settings(scorer: Scorer, **given: object) -> Settings:
    return service_settings(scorer, max_age_seconds=DAY, **given)


def _ask(client: TestClient, entities: Sequence[str]) -> list[dict[str, Any]]:
    items = [{"entity_id": entity} for entity in entities]
    results: list[dict[str, Any]] = client.post("/score", json={"items": items}).json()["results"]
    return results


def _put_features(client: TestClient, entities: Sequence[str]) -> None:
    for entity in entities:
        assert client.put(f"/features/{entity}", json={"features": B}).status_code == 204


@given(st.text(), st.floats(0, DAY))
def test_no_score_is_due_before_the_last_tenth_nor_not_at_its_end(entity: str, age: float) -> None:
    """Early enough to be renewed in time, and late enough not to be scored twice a day."""
    assert not LIMIT.is_due(entity, min(age, 0.9 * DAY))
    assert LIMIT.is_due(entity, age) <= (not LIMIT.is_over(age))
    assert not AgeLimit(seconds=DAY, spread=0).is_due(entity, age)


def test_moments_are_spread_evenly() -> None:
    """Of 10,000 entities with ids that differ in a digit, each tenth of the span has its tenth."""
    ids = [f"C{number:05}" for number in range(10_000)]
    due = [sum(LIMIT.is_due(entity, 0.9 * DAY + step * 0.01 * DAY) for entity in ids) for step in range(11)]

    assert due[0] == 0
    assert due[10] >= 9_990
    assert all(900 <= later - earlier <= 1_100 for earlier, later in pairwise(due))


def test_there_is_no_wave(scorer: Scorer, memory: MemoryStore) -> None:
    """200 entities of one run, each asked for all the time: renewed little by little, and nobody ever waits for it."""
    wall = FrozenClock(NOW + 0.9 * DAY)
    publish(memory.store, scorer, dict.fromkeys(ENTITIES, A), scored_at=NOW)
    renewed: list[float] = []
    with serving(scorer, memory, _settings(scorer), wall=wall) as client:
        _put_features(client, ENTITIES)
        for _ in range(20):
            wall.advance(0.005 * DAY)
            assert {one["source"] for one in _ask(client, ENTITIES)} == {"cache"}
            begun = _metric(client, 'forescore_renewals_total{outcome="begun"}')
            wait_until(lambda begun=begun: _metric(client, 'forescore_write_backs_total{outcome="written"}') == begun)
            renewed.append(begun)
        wall.advance(1)
        late = _ask(client, ENTITIES)
        stale = _metric(client, 'forescore_lookups_total{outcome="stale"}')

    assert (renewed[-1], stale) == (200, 0)
    assert max(later - earlier for earlier, later in pairwise([0, *renewed])) <= 25  # an even share is 10
    assert {one["scores"]["buys"] for one in late} == {0.3100255}
    assert max(one["age_seconds"] for one in late) <= 0.1 * DAY + 1


def test_what_cannot_be_renewed_is_served_until_the_bound(scorer: Scorer, memory: MemoryStore) -> None:
    """Without features the old score stands; at the bound it is refused, as ever."""
    wall = FrozenClock(NOW + DAY)
    publish(memory.store, scorer, {"a": A}, scored_at=NOW)
    with serving(scorer, memory, _settings(scorer), wall=wall) as client:
        assert client.get("/score/a").json()["scores"] == {"buys": 0.8581489}
        wait_until(lambda: _metric(client, 'forescore_renewals_total{outcome="begun"}') == 1)
        assert client.get("/score/a").status_code == 200
        wall.advance(1)
        assert client.get("/score/a").status_code == 503


def test_the_budget_bounds_renewals(scorer: Scorer, memory: MemoryStore) -> None:
    """A list of 200 that are all due begins as many as the budget of write-backs allows; the rest is only served."""
    wall = FrozenClock(NOW + DAY)
    publish(memory.store, scorer, dict.fromkeys(ENTITIES, A), scored_at=NOW)
    settings = _settings(scorer, write_back_per_second=30)
    with serving(scorer, memory, settings, wall=wall, monotonic=FrozenClock()) as client:
        _put_features(client, ENTITIES)
        results = _ask(client, ENTITIES)
        counts = [_metric(client, f'forescore_renewals_total{{outcome="{word}"}}') for word in ("begun", "over_budget")]

    assert {(one["source"], one["age_seconds"]) for one in results} == {("cache", DAY)}
    assert counts == [30, 170]


def test_nothing_is_renewed_where_it_would_not_be_kept(scorer: Scorer, scorer2: Scorer, memory: MemoryStore) -> None:
    """Without write-back, with another version than the snapshot's, and for who wants only the cache's."""
    wall = FrozenClock(NOW + DAY)
    publish(memory.store, scorer, {"a": A}, scored_at=NOW)
    for model, write_back in ((scorer, False), (scorer2, True)):
        with serving(model, memory, _settings(model, write_back=write_back), wall=wall) as client:
            assert client.get("/score/a").status_code == 200
            assert _metric(client, 'forescore_renewals_total{outcome="begun"}') == 0
    with serving(scorer, memory, _settings(scorer), wall=wall) as client:
        assert client.get("/score/a", headers={"cache-control": "only-if-cached"}).status_code == 200
        assert _metric(client, 'forescore_renewals_total{outcome="begun"}') == 0


def test_an_unknown_id_a_thousand_times(scorer: Scorer, memory: MemoryStore) -> None:
    """One question to the sources until FORESCORE_FEATURES__UNKNOWN_SECONDS have passed; then one more."""
    clock = FrozenClock()
    publish(memory.store, scorer, {"a": A})
    asked = _count_reads(memory)
    with serving(scorer, memory, service_settings(scorer, unknown_seconds=2), monotonic=clock) as client:
        found = {client.get("/score/nobody").status_code for _ in range(1000)}
        assert asked == [["nobody"]]
        clock.advance(2)
        found |= {client.get("/score/nobody").status_code for _ in range(10)}
        remembered = _metric(client, "forescore_unknown_remembered_total")

    assert found == {404}
    assert asked == [["nobody"], ["nobody"]]
    assert remembered == 999 + 9


def test_an_unknown_id_is_seen_at_once_in_the_next_snapshot(scorer: Scorer, memory: MemoryStore) -> None:
    """However long it would be remembered, and however seldom the pointer is polled."""
    publish(memory.store, scorer, {"a": A})
    settings = service_settings(scorer, unknown_seconds=3600, pointer_poll_seconds=3600)
    with serving(scorer, memory, settings, monotonic=FrozenClock()) as client:
        assert client.get("/score/new").status_code == 404
        publish(memory.store, scorer, {"a": A, "new": B}, snapshot="1-B")
        answer = client.get("/score/new")

    assert (answer.status_code, answer.json()["snapshot"], answer.json()["source"]) == (200, "1-B", "cache")


def _count_reads(memory: MemoryStore) -> list[list[str]]:
    asked: list[list[str]] = []
    read = memory.async_store.features.read

    async def counted(ids: list[str]) -> list[bytes | None]:
        if ids:  # none: a look at the set-up
            asked.append(list(ids))
        return await read(ids)

    memory.async_store.features.read = counted  # type: ignore[method-assign,assignment]
    return asked
