"""How fresh a score is wanted, in HTTP's own words, and what is answered."""

import time
from collections.abc import Mapping
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from support.publish import publish
from support.servers import wait_until
from support.services import service_settings, serving

from service.freshness import MOST_SECONDS, Wish
from shared.errors import StoreDown
from shared.scorer import Scorer
from shared.snapshot import SnapshotState
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

A = {"visits": 1, "returns": 0, "basket": 2}
B = {"visits": 0, "returns": 3, "basket": 1}
NOW = 1_800_000_000
HOUR = 3600


def _get(client: TestClient, entity: str, cache_control: str | None = None, **more: str) -> httpx2.Response:
    headers = {} if cache_control is None else {"cache-control": cache_control}
    answer: httpx2.Response = client.get(f"/score/{entity}", headers=headers | more)  # type: ignore[assignment]
    return answer


def _told(answer: httpx2.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["source"], answer.headers["cache-status"]


@pytest.mark.parametrize(
    ("header", "wish"),
    [
        (None, Wish()),
        ("", Wish()),
        ("max-age=60", Wish(max_age=60)),
        ('max-age="60"', Wish(max_age=60)),
        ("MAX-AGE = 60 , foo=bar", Wish(max_age=60)),
        ("max-age=0", Wish(max_age=0)),
        ("max-age=60, max-stale=30", Wish(max_age=90)),
        ("max-age=60, max-stale", Wish()),
        ("max-age=60, max-stale=soon", Wish(max_age=60)),
        ("max-stale=30", Wish()),
        ("no-cache", Wish(max_age=-1)),
        ("no-cache, max-age=60, max-stale", Wish(max_age=-1)),
        ("only-if-cached", Wish(only_if_cached=True)),
        ("only-if-cached, max-age=5", Wish(max_age=5, only_if_cached=True)),
        ("max-age=5, max-age=500", Wish(max_age=5)),
        ("max-age=99999999999999999999", Wish(max_age=MOST_SECONDS)),
        ("max-age=0000000000000000000060", Wish(max_age=60)),
        ("max-age=-1", Wish()),
        ("max-age", Wish()),
        ("max-age=1.5", Wish()),
        ("max-age=\u0661", Wish()),
        ("x_no-cache, no-cachet, foo no-cache", Wish()),
        ('foo="no-cache"', Wish()),
    ],
)
def test_a_header_is_understood_or_passed_over(header: str | None, wish: Wish) -> None:
    """The directives of RFC 9111; what is broken or unknown never fails a request."""
    assert Wish.parse(header) == wish


@given(st.text())
def test_no_header_is_an_error(header: str) -> None:
    """Whatever comes, a wish comes of it."""
    assert isinstance(Wish.parse(header), Wish)


@pytest.mark.parametrize("unit", ["a ", ' ,"', "a=", " ", ",", '="', "a" * 9 + ","])
def test_a_long_header_is_read_in_no_time(unit: str) -> None:
    """64 KB made to be slow to read cost less than a second."""
    start = time.perf_counter()
    Wish.parse(unit * (65_536 // len(unit)))
    assert time.perf_counter() - start < 1


def test_a_hit_says_how_old_it_is(scorer: Scorer, memory: MemoryStore) -> None:
    """Age, Cache-Status, Cache-Control and ETag beside the body; what was scored for this answer has no Age."""
    publish(memory.store, scorer, {"a": A}, scored_at=NOW - HOUR)
    with serving(scorer, memory, wall=FrozenClock(NOW)) as client:
        client.put("/features/new", json={"features": B})
        hit, online = _get(client, "a"), _get(client, "new")

    assert _told(hit) == (200, "cache", "forescore; hit")
    assert (hit.headers["age"], hit.json()["age_seconds"]) == ("3600", 3600)
    assert hit.headers["cache-control"] == "private, no-cache"
    assert hit.headers["etag"].startswith('"')
    assert _told(online) == (200, "online", "forescore; fwd=miss; stored")
    assert "age" not in online.headers


def test_a_score_older_than_wished_is_scored_anew(scorer: Scorer, memory: MemoryStore) -> None:
    """If its features can be had; a score that is young enough is answered as it is."""
    publish(memory.store, scorer, {"a": A}, scored_at=NOW - HOUR)
    with serving(scorer, memory, wall=FrozenClock(NOW)) as client:
        client.put("/features/a", json={"features": B})
        assert _told(_get(client, "a", "max-age=3600")) == (200, "cache", "forescore; hit")
        fresh = _get(client, "a", "max-age=3599")
        assert _told(fresh) == (200, "online", "forescore; fwd=request")
        assert (fresh.json()["scores"], fresh.json()["age_seconds"]) == ({"buys": 0.3100255}, 0)
        assert _told(_get(client, "a", "max-age=3500, max-stale=100")) == (200, "cache", "forescore; hit")
        assert _told(_get(client, "a", "max-age=0, max-stale")) == (200, "cache", "forescore; hit")
        assert _told(_get(client, "a", "no-cache"))[1] == "online"


def test_one_callers_wish_changes_nobody_elses_answer(scorer: Scorer, memory: MemoryStore) -> None:
    """What the batch scored stays in the snapshot, whatever features lie about for its entity."""
    publish(memory.store, scorer, {"a": A})
    with serving(scorer, memory) as client:
        client.put("/features/a", json={"features": B})
        assert _get(client, "a", "no-cache").json()["scores"] == {"buys": 0.3100255}
        assert _get(client, "a").json()["scores"] == {"buys": 0.8581489}


def test_without_features_the_old_score_is_told_as_old(scorer: Scorer, memory: MemoryStore) -> None:
    """200 with the truth in Age and in the body."""
    publish(memory.store, scorer, {"a": A}, scored_at=NOW - HOUR)
    with serving(scorer, memory, wall=FrozenClock(NOW)) as client:
        for wish in ("max-age=60", "no-cache"):
            answer = _get(client, "a", wish)
            assert _told(answer) == (200, "cache", "forescore; hit; detail=not-rescored")
            assert (answer.headers["age"], answer.json()["age_seconds"]) == ("3600", 3600)


def test_features_that_break_a_rule_leave_the_old_score(scorer: Scorer, memory: MemoryStore) -> None:
    """A new score cannot be had: the old one is told as old."""
    publish(memory.store, scorer, {"a": A})
    with serving(scorer, memory) as client:
        memory.async_store.features.read = _broken_features  # type: ignore[method-assign]
        assert _told(_get(client, "a", "no-cache")) == (200, "cache", "forescore; hit; detail=not-rescored")


def test_only_if_cached_scores_nothing(scorer: Scorer, memory: MemoryStore) -> None:
    """A score that will do, or 504; never a forward pass."""
    publish(memory.store, scorer, {"a": A}, scored_at=NOW - HOUR)
    with serving(scorer, memory, wall=FrozenClock(NOW)) as client:
        for entity in ("a", "new"):
            client.put(f"/features/{entity}", json={"features": B})
        assert _told(_get(client, "a", "only-if-cached")) == (200, "cache", "forescore; hit")
        for entity, wish in (("a", "only-if-cached, max-age=60"), ("new", "only-if-cached"), ("x", "only-if-cached")):
            answer = _get(client, entity, wish)
            assert (answer.status_code, answer.json()["type"]) == (504, "urn:forescore:problem:not-cached")
        text = client.get("/metrics").text
    assert "forescore_forward_rows_count 0.0" in text


def test_what_the_batch_rejected_is_told_from_the_cache(scorer: Scorer, memory: MemoryStore) -> None:
    """The reason is in the snapshot: only-if-cached finds it there."""
    publish(memory.store, scorer, {"bad": {"visits": 1, "returns": 0}})
    with serving(scorer, memory) as client:
        answer = _get(client, "bad", "only-if-cached")
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "missing", "basket")


def test_a_list_is_asked_on_the_same_terms(scorer: Scorer, memory: MemoryStore) -> None:
    """Cache-Control of POST holds for each of its items, given features included."""
    publish(memory.store, scorer, {"a": A, "b": A}, scored_at=NOW - HOUR)
    items = [{"entity_id": "a"}, {"entity_id": "b"}, {"entity_id": "x"}, {"features": A}]
    with serving(scorer, memory, wall=FrozenClock(NOW)) as client:
        client.put("/features/a", json={"features": B})
        fresh = client.post("/score", json={"items": items}, headers={"cache-control": "max-age=60"}).json()
        cached = client.post("/score", json={"items": items}, headers={"cache-control": "only-if-cached"}).json()

    assert [_what(one) for one in fresh["results"]] == ["online", "cache", 404, "online"]
    assert [_what(one) for one in cached["results"]] == ["cache", "cache", 504, 504]


def test_a_score_beyond_the_bound_is_served_to_nobody(scorer: Scorer, memory: MemoryStore) -> None:
    """It is scored anew and kept; without features it is 503 with the reason, whatever staleness the caller allows."""
    wall = FrozenClock(NOW)
    publish(memory.store, scorer, {"a": A, "b": A}, scored_at=NOW - HOUR)
    with serving(scorer, memory, service_settings(scorer, max_age_seconds=HOUR, max_age_spread=0), wall=wall) as client:
        client.put("/features/a", json={"features": B})
        assert _told(_get(client, "a")) == (200, "cache", "forescore; hit")
        wall.advance(1)
        assert _told(_get(client, "a")) == (200, "online", "forescore; fwd=stale; stored")
        wait_until(lambda: _get(client, "a").json()["source"] == "cache")
        assert _get(client, "a").json()["scores"] == {"buys": 0.3100255}
        refused = _get(client, "b", "max-age=0, max-stale")
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:forescore:problem:score-unavailable")
        assert "FORESCORE_SERVICE__MAX_AGE_SECONDS" in refused.json()["detail"]
        assert "retry-after" in refused.headers
        assert _get(client, "b", "only-if-cached").status_code == 504
        assert client.get("/score/b", params={"snapshot": "1-A"}).json()["age_seconds"] == HOUR + 1
        assert 'forescore_lookups_total{outcome="stale"} 3.0' in client.get("/metrics").text


def test_an_outage_is_told_as_one(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """Scored although the store could not be asked: a bypass, and not a miss."""
    meta = publish(memory.store, scorer, {"a": A})
    with serving(scorer, memory, service_settings(scorer)) as client:
        client.put("/features/a", json={"features": B})
        memory.lose_bucket(meta, "a")
        assert _told(_get(client, "a")) == (200, "online", "forescore; fwd=bypass; detail=store-lost")
        memory.async_store.reader.peek = memory.async_store.reader.lookup = _down  # type: ignore[method-assign,assignment]
        assert _told(_get(client, "a")) == (200, "online", "forescore; fwd=bypass; detail=store-down")


def test_an_answer_that_still_holds_is_not_sent_again(scorer: Scorer, memory: MemoryStore) -> None:
    """304 with the age as it is now and without a body, as long as the score is the same one."""
    wall = FrozenClock(NOW)
    publish(memory.store, scorer, {"a": A, "b": A}, scored_at=NOW - HOUR)
    with serving(scorer, memory, wall=wall) as client:
        first = _get(client, "a")
        tag = first.headers["etag"]
        assert _get(client, "b").headers["etag"] != tag
        wall.advance(7)
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = _get(client, "a", **{"if-none-match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
            assert again.headers["age"] == str(HOUR + 7)
            assert again.headers["cache-control"] == "private, no-cache"
            assert again.headers["cache-status"] == "forescore; hit"
        for unknown in ('"x"', tag.strip('"'), ""):
            assert _get(client, "a", **{"if-none-match": unknown}).status_code == 200
        publish(memory.store, scorer, {"a": A}, snapshot="1-B", scored_at=NOW)
        wait_until(lambda: _get(client, "a", **{"if-none-match": tag}).status_code == 200)
        assert _get(client, "a").headers["etag"] != tag


def test_an_error_is_kept_by_nobody(scorer: Scorer, memory: MemoryStore) -> None:
    """A 404 of now may be a score in a moment."""
    with serving(scorer, memory) as client:
        answer = _get(client, "nobody", **{"if-none-match": "*"})
        assert (answer.status_code, answer.headers["cache-control"]) == (404, "no-store")
        assert client.post("/score", json={"items": []}).headers["cache-control"] == "no-store"


def test_a_version_is_read_from_its_newest_ready_snapshot(scorer: Scorer, scorer2: Scorer, memory: MemoryStore) -> None:
    """Active or not, never a held or a half-written one; nothing is scored online then."""
    publish(memory.store, scorer, {"a": A, "b": A}, scored_at=NOW - 9)
    publish(memory.store, scorer, {"a": B}, snapshot="1-B", scored_at=NOW - 5)
    publish(memory.store, scorer2, {"a": A}, scored_at=NOW - 3)
    publish(memory.store, scorer, {"a": A}, snapshot="1-C", scored_at=NOW - 1, active=False)
    memory.store.control.mark("1-C", SnapshotState.HELD)
    with serving(scorer2, memory) as client:
        assert _get(client, "a").json()["model_version"] == "2"
        answer = client.get("/score/a", params={"model_version": "1"})
        assert (answer.json()["snapshot"], answer.json()["scores"]) == ("1-B", {"buys": 0.3100255})
        assert answer.headers["cache-status"] == "forescore; hit"
        assert client.get("/score/b", params={"model_version": "1"}).status_code == 404
        missing = client.get("/score/a", params={"model_version": "7"})
        assert (missing.status_code, missing.json()["type"]) == (404, "urn:forescore:problem:snapshot-not-found")
        both = client.get("/score/a", params={"model_version": "1", "snapshot": "1-B"})
        assert (both.status_code, both.json()["type"]) == (400, "urn:forescore:problem:bad-request")


def _what(result: Mapping[str, object]) -> object:
    error = result.get("error")
    return error["status"] if isinstance(error, dict) else result["source"]


async def _broken_features(ids: list[str]) -> list[bytes | None]:
    return [b'{"visits": "abc"}' for _ in ids]


async def _down(_meta: object, _ids: object) -> list[object]:
    raise StoreDown("gone")
