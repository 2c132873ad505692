from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.publish import publish
from support.servers import wait_until
from support.services import service_settings, serving

from service.routes.features import _payload
from shared.errors import BadRequest, StoreDown
from shared.scorer import Scorer
from shared.testing.bundles import every_feature_table
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

GOOD = {"visits": 1, "returns": 0, "basket": 2}
OTHER = {"visits": 0, "returns": 3, "basket": 1}


def test_features_make_an_unknown_entity_known(scorer: Scorer, memory: MemoryStore) -> None:
    """204, and the next question is answered, though the id was remembered as unknown a moment ago."""
    publish(memory.store, scorer, {"a": GOOD})
    settings = service_settings(scorer, unknown_seconds=3600)
    with serving(scorer, memory, settings) as client:
        assert client.get("/score/kg%2Fs").status_code == 404
        answer = client.put("/features/kg%2Fs", json={"features": OTHER})
        assert (answer.status_code, answer.content) == (204, b"")
        body = client.get("/score/kg%2Fs").json()

    assert (body["entity_id"], body["source"], body["scores"]) == ("kg/s", "online", {"buys": 0.3100255})


def test_new_features_replace_the_score_that_came_from_the_old_ones(scorer: Scorer, memory: MemoryStore) -> None:
    """An online score in the snapshot does not outlive the features that it was computed from."""
    publish(memory.store, scorer, {"a": GOOD})
    with serving(scorer, memory) as client:
        client.put("/features/new", json={"features": GOOD})
        wait_until(lambda: client.get("/score/new").json()["source"] == "cache")
        client.put("/features/new", json={"features": OTHER})
        body = client.get("/score/new").json()

    assert (body["source"], body["scores"]) == ("cache", {"buys": 0.3100255})


def test_a_score_of_the_batch_stays(scorer: Scorer, memory: MemoryStore) -> None:
    """The snapshot is what was published: features of a known entity do not change it."""
    publish(memory.store, scorer, {"a": GOOD})
    with serving(scorer, memory) as client:
        assert client.put("/features/a", json={"features": OTHER}).status_code == 204
        assert client.get("/score/a").json()["scores"] == {"buys": 0.8581489}


def test_they_live_as_long_as_the_settings_say(scorer: Scorer) -> None:
    """After their time to live the entity is unknown again."""
    clock = FrozenClock()
    memory = MemoryStore("purchase", clock)
    with serving(scorer, memory) as client:
        client.put("/features/new", json={"features": GOOD})
        assert client.get("/score/new").status_code == 200
        clock.advance(7 * 86_400)
        assert client.get("/score/new").status_code == 404


def test_they_may_be_kept_for_a_shorter_time(scorer: Scorer) -> None:
    """A caller knows how soon its features are old; the settings say how long they are kept at most."""
    clock = FrozenClock()
    with serving(scorer, MemoryStore("purchase", clock)) as client:
        client.put("/features/new", json={"features": GOOD, "ttl_seconds": 60})
        client.put("/features/default", json={"features": GOOD, "ttl_seconds": None})
        clock.advance(60)
        assert client.get("/score/new").status_code == 404
        assert client.get("/score/default").status_code == 200
        for wrong in (0, -1, 1.5, "60", True, 7 * 86_400 + 1):
            answer = client.put("/features/new", json={"features": GOOD, "ttl_seconds": wrong})
            assert (answer.status_code, answer.json()["detail"]) == (
                400,
                "ttl_seconds: a whole number from 1 to 604800",
            )


def test_they_are_forgotten_when_asked(scorer: Scorer, memory: MemoryStore) -> None:
    """204, again too; the entity is unknown from then on. A malformed id is refused, and a store that is down told."""
    with serving(scorer, memory) as client:
        client.put("/features/kg%2Fs", json={"features": GOOD})
        assert client.get("/score/kg%2Fs").status_code == 200
        for _ in range(2):
            answer = client.delete("/features/kg%2Fs")
            assert (answer.status_code, answer.content) == (204, b"")
        assert client.get("/score/kg%2Fs").status_code == 404
        assert client.delete("/features/%ff").status_code == 422
        memory.failure = StoreDown("gone")
        assert client.delete("/features/kg%2Fs").status_code == 503


@pytest.mark.parametrize(
    ("features", "code", "field"),
    [
        ({"visits": 1, "returns": 0}, "missing", "basket"),
        ({**GOOD, "visits": "abc"}, "not_a_number", "visits"),
        ({**GOOD, "visit": 1}, "unknown_feature", "visit"),
    ],
)
def test_features_that_break_a_rule_are_refused(
    scorer: Scorer, memory: MemoryStore, features: dict[str, object], code: str, field: str
) -> None:
    """422 with code and field, before anything is kept."""
    with serving(scorer, memory) as client:
        answer = client.put("/features/new", json={"features": features})
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, field)
        assert client.get("/score/new").status_code == 404


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"features": 1}', '{"features": {}, "more": 1}', "{"])
def test_a_body_of_another_shape_is_refused(scorer: Scorer, memory: MemoryStore, body: str) -> None:
    """400 as a problem."""
    with serving(scorer, memory) as client:
        answer = client.put("/features/new", content=body)

    assert (answer.status_code, answer.json()["type"]) == (400, "urn:forescore:problem:bad-request")


def test_a_body_over_the_limit_is_refused(scorer: Scorer, memory: MemoryStore) -> None:
    """413, as for scores."""
    with serving(scorer, memory, service_settings(scorer, max_body_bytes=1024)) as client:
        assert client.put("/features/new", content=b"[" * 1025).status_code == 413


def test_without_a_source_in_the_store_they_are_not_taken(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """409 with the next step: features that nobody would read are not kept."""
    pq.write_table(pa.table({"customer_id": ["x"], **{name: [1] for name in GOOD}}), tmp_path / "f.parquet")
    for source in ("none", str(tmp_path / "f.parquet")):
        with serving(scorer, memory, service_settings(scorer, features=source)) as client:
            answer = client.put("/features/new", json={"features": GOOD})
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:forescore:problem:features-not-kept")
        assert "FORESCORE_FEATURES__URL" in answer.json()["detail"]


def test_without_the_store_they_cannot_be_kept(scorer: Scorer, memory: MemoryStore) -> None:
    """503 with Retry-After, and nothing about where the store is."""
    with serving(scorer, memory) as client:
        memory.failure = StoreDown("the store at secret:6379 is gone")
        answer = client.put("/features/new", json={"features": GOOD})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["type"] == "urn:forescore:problem:store-unavailable"
    assert "secret" not in answer.text


def test_what_is_kept_is_what_was_sent(everything: Scorer, memory: MemoryStore) -> None:
    """A number of any size that a rule takes is kept exactly, or refused; it never becomes a missing value."""
    row = every_feature_table(1).drop(["id"]).to_pylist()[0]
    body = orjson.dumps({"features": row})
    with serving(everything, memory) as client:
        for region, status in ((b"3", 204), (b"1e999", 422), (b"36893488147419103233", 422)):
            sent = body.replace(f'"region":{row["region"]}'.encode(), b'"region":' + region)
            assert client.put("/features/e", content=sent).status_code == status
        kept = client.get("/score/e").json()["scores"]
        inline = client.post("/score", json={"items": [{"features": row | {"region": 3}}]}).json()["results"][0]

    assert kept == inline["scores"]


def test_what_json_cannot_hold_is_not_kept() -> None:
    """An infinite number would be written as null: it is refused instead."""
    with pytest.raises(BadRequest, match="float64"):
        _payload({"x": float("inf")})
