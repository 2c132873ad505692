"""Which model, which snapshot: never v1 under the name of v2, never half of one and half of another."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.testclient import TestClient
from support.publish import publish
from support.servers import wait_until
from support.services import opener, service_settings, serving
from support.snapshots import promote, rollback

from service.app import create_app
from service.runtime import Dependencies
from shared.scorer import Scorer
from shared.settings import RedisSettings, Settings
from shared.snapshot import Lookup, SnapshotMeta
from shared.store.connect import open_store
from shared.testing.bundles import purchase_bundle
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}


def _never_polling(scorer: Scorer) -> Settings:
    return service_settings(scorer, pointer_poll_seconds=3600)


def test_a_cached_score_carries_the_version_that_computed_it(
    scorer: Scorer, scorer2: Scorer, memory: MemoryStore
) -> None:
    """Version 2 is deployed over a snapshot of version 1: the cached number is told as version 1's, which it is."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer2, memory) as client:
        cached = client.get("/score/a").json()
        online = client.post("/score", json={"items": [{"features": ROW}]}).json()["results"][0]

    assert (cached["model_version"], cached["snapshot"], cached["scores"]) == ("1", "1-A", {"buys": 0.8581489})
    assert (online["model_version"], online["snapshot"]) == ("2", None)
    assert online["scores"] != cached["scores"]
    assert (cached["parity"], online["parity"]) == ("tolerance", "tolerance")


def test_the_outputs_are_those_of_the_snapshot(scorer2: Scorer, everything: Scorer, memory: MemoryStore) -> None:
    """A snapshot's numbers are named by its own outputs, even where the bundle of this process has others."""
    rows = {"a": {"age": 30, "region": 1, "embedding": [0] * 4, "tokens": [0] * 6, "mask": [True] * 6}}
    publish(memory.store, everything, rows, model="purchase", snapshot="0-A", model_version="0")
    with serving(scorer2, memory) as client:
        body = client.get("/score/a").json()

    assert list(body["scores"])[:2] == ["leaves", "plan.small"]
    assert body["prediction"]["leaves"] in {"stays", "leaves"}


def test_after_a_flip_no_old_value_is_answered(scorer: Scorer, scorer2: Scorer, memory: MemoryStore) -> None:
    """Nothing in the process outlives the snapshot that it came from."""
    publish(memory.store, scorer, {"a": ROW, "b": ROW})
    with serving(scorer2, memory) as client:
        assert client.get("/score/a").json()["model_version"] == "1"
        publish(memory.store, scorer2, {"a": ROW, "b": ROW})
        wait_until(lambda: client.get("/score/b").json()["model_version"] == "2")
        body = client.get("/score/a").json()

    assert (body["model_version"], body["snapshot"], body["parity"]) == ("2", "2-A", "exact")


def test_an_entity_that_the_new_snapshot_lacks_is_not_answered_from_the_old_one(
    scorer: Scorer, memory: MemoryStore, tmp_path: Path
) -> None:
    """Yesterday held A and B, today holds A: B is scored anew if it can be, and unknown if not."""
    publish(memory.store, scorer, {"a": ROW, "b": ROW, "c": ROW})
    publish(memory.store, scorer, {"a": ROW}, snapshot="1-B")
    pq.write_table(pa.table({"customer_id": ["b"], **{name: [0] for name in ROW}}), tmp_path / "f.parquet")
    with serving(scorer, memory, service_settings(scorer, features=str(tmp_path / "f.parquet"))) as client:
        assert client.get("/score/a").json()["snapshot"] == "1-B"
        fresh = client.get("/score/b").json()
        assert (fresh["source"], fresh["scores"]) == ("online", {"buys": 0.45016602})
        assert client.get("/score/c").status_code == 404


def test_two_instances_agree_within_the_polling_bound(
    scorer: Scorer, scorer2: Scorer, redis_settings: RedisSettings
) -> None:
    """After a promotion, and after a rollback, every instance answers from the same snapshot."""
    settings = service_settings(scorer, redis=redis_settings.model_copy(update={"read_timeout_ms": 5000}))
    with open_store(settings, "purchase") as store:
        publish(store, scorer, {"a": ROW})
        with serving(scorer2, settings=settings) as one, serving(scorer2, settings=settings) as other:
            publish(store, scorer2, {"a": ROW})
            _require_both(one, other, "2-A")
            rollback(store)
            _require_both(one, other, "1-A")
            promote(store, "2-A")
            _require_both(one, other, "2-A")


def test_a_bulk_is_one_snapshot_even_when_the_pointer_moves_meanwhile(
    scorer: Scorer, scorer2: Scorer, memory: MemoryStore
) -> None:
    """A thousand ids, and a promotion while they are looked up: the whole answer is of one snapshot."""
    ids = [f"C{number}" for number in range(999)]
    publish(memory.store, scorer, dict.fromkeys(ids, ROW))
    _promote_during_the_look_up(memory, scorer2, ids)
    with serving(scorer2, memory, _never_polling(scorer2)) as client:
        items = [*({"entity_id": entity} for entity in ids), {"entity_id": "only in the new one"}]
        answer = client.post("/score", json={"items": items}).json()

    assert answer["snapshot"] == "2-A"
    assert {(one["snapshot"], one["model_version"]) for one in answer["results"]} == {("2-A", "2")}


def test_a_retired_snapshot_makes_nobody_unknown(scorer: Scorer, memory: MemoryStore) -> None:
    """An instance that has not heard of the promotion yet finds its snapshot gone, and looks where the pointer is."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer, memory, _never_polling(scorer)) as client:
        assert client.get("/score/a").json()["snapshot"] == "1-A"
        publish(memory.store, scorer, {"a": ROW, "b": ROW}, snapshot="1-B")
        memory.store.control.retire("1-A")
        assert client.get("/score/b").json()["snapshot"] == "1-B"


def test_another_bundle_under_the_same_version_is_refused(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """New weights under an old name: the process does not become ready, and says why."""
    publish(memory.store, scorer, {"a": ROW})
    namesake = purchase_bundle(tmp_path / "bundle", weights=(9.0, 9.0, 9.0))
    settings = service_settings(scorer).model_copy(update={"bundle": namesake.path})
    app = create_app(settings, dependencies=Dependencies(open_store=opener(memory)))
    with TestClient(app) as client:
        wait_until(lambda: client.get("/readyz").json()["status"] == "failed")
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "purchase 1" in answer.json()["reason"]
        assert client.get("/score/a").json()["type"] == "urn:forescore:problem:not-ready"


def test_a_namesake_promoted_later_is_not_mixed_with(scorer: Scorer, memory: MemoryStore) -> None:
    """Its cached scores are its own; nothing is scored online under a version that means two models."""
    with serving(scorer, memory) as client:
        publish(memory.store, scorer, {"a": ROW}, bundle_digest="f" * 64)
        wait_until(lambda: client.get("/score/a").status_code == 200)
        (result,) = client.post("/score", json={"items": [{"features": ROW}]}).json()["results"]

    assert result["error"]["type"] == "urn:forescore:problem:score-unavailable"
    assert "another bundle" in result["error"]["detail"]


def _require_both(one: TestClient, other: TestClient, snapshot: str) -> None:
    for client in (one, other):
        wait_until(lambda client=client: client.get("/score/a").json()["snapshot"] == snapshot)  # type: ignore[misc]


def _promote_during_the_look_up(memory: MemoryStore, scorer: Scorer, ids: Sequence[str]) -> None:
    """The first look-up of many ids answers from the old snapshot, and the pointer moves before it returns."""
    lookup = memory.async_store.reader.lookup

    async def moved_meanwhile(meta: SnapshotMeta, asked: Sequence[str]) -> list[Lookup]:
        found = await lookup(meta, asked)
        if meta.model_version == "1" and len(asked) > 1:
            await asyncio.to_thread(publish, memory.store, scorer, dict.fromkeys([*ids, "only in the new one"], ROW))
        return found

    memory.async_store.reader.lookup = moved_meanwhile  # type: ignore[method-assign]
