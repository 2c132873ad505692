from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from support.publish import bits, meta_of, publish, write
from support.servers import wait_until
from support.services import service_settings, serving
from support.snapshots import promote

from shared.codes import Code
from shared.errors import StoreDown
from shared.scorer import Scorer
from shared.snapshot import SnapshotState
from shared.testing.bundles import every_feature_table
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

ROWS = {
    "0": {"visits": 1, "returns": 0, "basket": 2},
    "1": {"visits": 0, "returns": 3, "basket": 1},
    "2": {"visits": 2, "returns": 1, "basket": 0},
    "3": {"visits": 1, "returns": 1, "basket": 1},
}
SCORES = {"0": 0.8581, "1": 0.31, "2": 0.7311, "3": 0.69}
BAD = {"visits": 1, "returns": 0}
NOW = 1_800_000_000
AN_ID_OF_EACH_KIND = [
    "kg/s",
    "a:b",
    "{tag}*",
    "100%",
    "a b",
    " a ",
    "+7",
    "007",
    "null",
    "NaN",
    "A",
    "?",
    "#",
    "\u65e5",
    "\\",
]


def _features(path: Path, rows: dict[str, dict[str, object]]) -> str:
    columns = {name: [row.get(name) for row in rows.values()] for name in ("visits", "returns", "basket")}
    pq.write_table(pa.table({"customer_id": list(rows), **columns}), path)
    return str(path)


def test_a_cached_score_says_everything_about_itself(scorer: Scorer, memory: MemoryStore) -> None:
    """The body has the score, its prediction, version, snapshot, source, times, age and parity, in this order."""
    publish(memory.store, scorer, ROWS, data_as_of=NOW - 7200, scored_at=NOW - 3600)
    with serving(scorer, memory, wall=FrozenClock(NOW)) as client:
        answer = client.get("/score/0")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json().items()) == [
        ("entity_id", "0"),
        ("scores", {"buys": 0.8581489}),
        ("prediction", {"buys": True}),
        ("model", "purchase"),
        ("model_version", "1"),
        ("snapshot", "1-A"),
        ("source", "cache"),
        ("scored_at", datetime.fromtimestamp(NOW - 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")),
        ("data_as_of", datetime.fromtimestamp(NOW - 7200, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")),
        ("age_seconds", 3600),
        ("parity", "exact"),
    ]


def test_known_rows_have_their_known_scores_from_the_cache_and_online(
    scorer: Scorer, memory: MemoryStore, tmp_path: Path
) -> None:
    """The four purchase rows score 0.8581, 0.31, 0.7311 and 0.69, to the same 32 bits by both ways."""
    publish(memory.store, scorer, ROWS)
    url = _features(tmp_path / "f.parquet", {f"new-{entity}": row for entity, row in ROWS.items()})
    with serving(scorer, memory, service_settings(scorer, features=url)) as client:
        for entity, expected in SCORES.items():
            cached = client.get(f"/score/{entity}").json()
            online = client.get(f"/score/new-{entity}").json()
            assert (cached["source"], online["source"]) == ("cache", "online")
            assert round(cached["scores"]["buys"], 4) == expected
            assert bits(cached["scores"]["buys"]) == bits(online["scores"]["buys"])


def test_an_online_score_belongs_to_no_snapshot(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """It is labelled with the version of the bundle that computed it, now, and with no snapshot."""
    publish(memory.store, scorer, {"a": ROWS["0"]})
    settings = service_settings(scorer, features=_features(tmp_path / "f.parquet", {"new": ROWS["1"]}))
    with serving(scorer, memory, settings, wall=FrozenClock(NOW)) as client:
        body = client.get("/score/new").json()

    assert (body["model_version"], body["snapshot"], body["source"]) == ("1", None, "online")
    assert (body["age_seconds"], body["data_as_of"], body["parity"]) == (0, None, "exact")


def test_an_unseen_entity_is_kept_in_the_snapshot(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """The second question about it is answered from the cache, with the same number and the time of the first."""
    publish(memory.store, scorer, {"a": ROWS["0"]}, data_as_of=NOW)
    settings = service_settings(scorer, features=_features(tmp_path / "f.parquet", {"new": ROWS["1"]}))
    with serving(scorer, memory, settings) as client:
        first = client.get("/score/new").json()
        wait_until(lambda: client.get("/score/new").json()["source"] == "cache")
        second = client.get("/score/new").json()

    assert second["scores"] == first["scores"]
    assert (second["snapshot"], second["scored_at"]) == ("1-A", first["scored_at"])
    assert second["data_as_of"] is None, "the snapshot's data is not what it was scored from"


def test_nothing_is_written_back_where_the_settings_say_so(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """Without write back every question is scored anew."""
    meta = publish(memory.store, scorer, {"a": ROWS["0"]})
    url = _features(tmp_path / "f.parquet", {"new": ROWS["1"]})
    with serving(scorer, memory, service_settings(scorer, features=url, write_back=False)) as client:
        assert client.get("/score/new").json()["source"] == "online"
    assert memory.store.writer.count(meta) == 1


@pytest.mark.parametrize("stranger", [{"bundle_digest": "b" * 64, "model_version": "0"}, {"golden_digest": "g" * 64}])
def test_a_snapshot_of_another_bundle_or_other_bits_takes_no_online_scores(
    scorer: Scorer, memory: MemoryStore, tmp_path: Path, stranger: dict[str, object]
) -> None:
    """Under a snapshot's name there are only scores of its model, and only of the bits that it promises."""
    meta = publish(memory.store, scorer, {"a": ROWS["0"]}, **stranger)
    url = _features(tmp_path / "f.parquet", {"new": ROWS["1"]})
    with serving(scorer, memory, service_settings(scorer, features=url)) as client:
        body = client.get("/score/new").json()
        assert (body["source"], body["parity"]) == (
            "online",
            "exact" if "golden_digest" not in stranger else "tolerance",
        )
    assert memory.store.writer.count(meta) == 1


def test_nobody_knows_the_entity(scorer: Scorer, memory: MemoryStore) -> None:
    """No score and no features: 404, with a problem that says what to do."""
    publish(memory.store, scorer, ROWS)
    with serving(scorer, memory) as client:
        answer = client.get("/score/nobody")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:forescore:problem:unknown-entity"
    assert "PUT /features" in answer.json()["detail"]


def test_before_the_first_promotion_entities_with_features_are_scored(
    scorer: Scorer, memory: MemoryStore, tmp_path: Path
) -> None:
    """No snapshot is no outage: the unseen are scored, with nothing to be exact with, and the others unknown."""
    settings = service_settings(scorer, features=_features(tmp_path / "f.parquet", {"new": ROWS["1"]}))
    with serving(scorer, memory, settings) as client:
        assert client.get("/score/new").json()["parity"] is None
        assert client.get("/score/nobody").status_code == 404


def test_a_rejected_entity_says_why_it_has_no_score(scorer: Scorer, memory: MemoryStore) -> None:
    """Known but rejected is told with the code, the field and the time, and is not called unknown."""
    publish(memory.store, scorer, {"bad": BAD}, scored_at=NOW)
    with serving(scorer, memory) as client:
        answer = client.get("/score/bad")

    problem = answer.json()
    assert answer.status_code == 422
    assert (problem["type"], problem["code"], problem["field"]) == (
        "urn:forescore:problem:row-rejected",
        "missing",
        "basket",
    )
    assert "2027-01-15T08:00:00Z" in problem["detail"]


def test_a_rejected_entity_is_scored_once_its_features_are_right(
    scorer: Scorer, memory: MemoryStore, tmp_path: Path
) -> None:
    """Features that a source has count for more than the batch's refusal."""
    publish(memory.store, scorer, {"bad": BAD})
    settings = service_settings(scorer, features=_features(tmp_path / "f.parquet", {"bad": ROWS["0"]}))
    with serving(scorer, memory, settings) as client:
        assert client.get("/score/bad").json()["scores"] == {"buys": 0.8581489}


def test_features_of_a_source_that_break_a_rule_are_told(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """Online as in the batch: code and field, and no score."""
    settings = service_settings(scorer, features=_features(tmp_path / "f.parquet", {"bad": BAD}))
    with serving(scorer, memory, settings) as client:
        answer = client.get("/score/bad")

    assert answer.status_code == 422
    assert (answer.json()["code"], answer.json()["field"]) == ("missing", "basket")


def test_a_lost_part_of_the_snapshot_is_no_404(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """Whoever may be known gets 503 with Retry-After, or an online score if his features can be had; never 404."""
    meta = publish(memory.store, scorer, {"a": ROWS["0"]})
    memory.lose_bucket(meta, "a")
    settings = service_settings(scorer, features=_features(tmp_path / "f.parquet", {"new": ROWS["1"]}))
    with serving(scorer, memory, settings) as client:
        answer = client.get("/score/a")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:forescore:problem:score-unavailable")
        assert answer.headers["retry-after"] == "2"
        assert client.get("/score/new").json()["source"] == "online"


def test_corrupt_bytes_cost_their_entity_only(scorer: Scorer, memory: MemoryStore) -> None:
    """Bytes that nobody of ours wrote are no score; the neighbours have theirs."""
    meta = publish(memory.store, scorer, ROWS)
    memory.corrupt(meta, "0")
    with serving(scorer, memory) as client:
        assert client.get("/score/0").status_code == 503
        assert client.get("/score/1").status_code == 200


def test_a_score_that_is_not_a_number_is_never_answered(scorer: Scorer, memory: MemoryStore) -> None:
    """NaN is stored as a rejection, and read as 422."""
    meta = meta_of(scorer, "1-A", 1)
    write(memory.store, meta, {}, {"a": (Code.NON_FINITE_SCORE, None)})
    promote(memory.store, "1-A")
    with serving(scorer, memory) as client:
        answer = client.get("/score/a")

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "non_finite_score", None)


def test_a_store_that_fails_between_two_questions_makes_no_404(scorer: Scorer, memory: MemoryStore) -> None:
    """If the features of an entity cannot be read just now, nobody can say that there are none."""
    publish(memory.store, scorer, ROWS)
    with serving(scorer, memory) as client:
        features = memory.async_store.features
        features.read = _fails  # type: ignore[method-assign]
        answer = client.get("/score/nobody")

    assert (answer.status_code, answer.json()["type"]) == (503, "urn:forescore:problem:score-unavailable")


@pytest.mark.parametrize("entity_id", AN_ID_OF_EACH_KIND)
def test_any_id_is_found_by_its_own_name(scorer: Scorer, memory: MemoryStore, entity_id: str) -> None:
    """Colons, slashes, braces, stars, percent signs, blanks, any script: the id in the path is the one in the table."""
    publish(memory.store, scorer, {entity_id: ROWS["0"]})
    with serving(scorer, memory) as client:
        answer = client.get(f"/score/{quote(entity_id, safe='')}")

    assert (answer.status_code, answer.json()["entity_id"]) == (200, entity_id)


@pytest.mark.parametrize(
    ("stored", "asked"),
    [("007", "7"), ("a", "A"), ("a", "a%20"), ("kg/s", "kg%252Fs"), ("7", "+7"), ("\u00e9", "e%CC%81")],
)
def test_no_id_is_taken_for_another(scorer: Scorer, memory: MemoryStore, stored: str, asked: str) -> None:
    """Ids that only look alike are two entities."""
    publish(memory.store, scorer, {stored: ROWS["0"]})
    with serving(scorer, memory) as client:
        assert client.get(f"/score/{asked}").status_code == 404


@pytest.mark.parametrize("path", ["", "%20", "a%00b", "a%0Ab", "%0A", "%FF", "%zz", "x" * 2048])
def test_what_cannot_be_an_id_is_refused(scorer: Scorer, memory: MemoryStore, path: str) -> None:
    """Empty, blank, null characters, broken encodings and 2 KB of id: 422, and never another entity."""
    with serving(scorer, memory) as client:
        answer = client.get(f"/score/{path}")

    assert (answer.status_code, answer.json()["type"]) == (422, "urn:forescore:problem:invalid-entity-id")


def test_an_unknown_id_is_looked_for_once_in_a_short_while(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """The sources are asked again when the memory ends, and at once in a new snapshot."""
    clock = FrozenClock()
    settings = service_settings(scorer, features="store", unknown_seconds=2)
    publish(memory.store, scorer, ROWS)
    with serving(scorer, memory, settings, monotonic=clock) as client:
        asked = _count_reads(memory)
        for _ in range(3):
            assert client.get("/score/nobody").status_code == 404
        assert asked == [["nobody"]]
        clock.advance(2)
        client.get("/score/nobody")
        publish(memory.store, scorer, ROWS, snapshot="1-B")
        client.get("/score/nobody")
        assert len(asked) == 3


def test_a_resident_snapshot_can_be_read_by_its_id(scorer: Scorer, memory: MemoryStore) -> None:
    """Held or old, its scores are told as its own; the active one is not touched by that."""
    publish(memory.store, scorer, {"a": ROWS["0"]})
    publish(memory.store, scorer, {"a": ROWS["1"], "bad": BAD}, snapshot="1-B", active=False)
    memory.store.control.mark("1-B", SnapshotState.HELD)
    with serving(scorer, memory) as client:
        held = client.get("/score/a", params={"snapshot": "1-B"}).json()
        assert (held["snapshot"], round(held["scores"]["buys"], 4)) == ("1-B", 0.31)
        assert client.get("/score/a").json()["snapshot"] == "1-A"
        assert client.get("/score/bad", params={"snapshot": "1-B"}).status_code == 422
        assert client.get("/score/new", params={"snapshot": "1-B"}).json()["type"].endswith("unknown-entity")
        assert client.get("/score/a", params={"snapshot": "1-C"}).json()["type"].endswith("snapshot-not-found")


def test_a_half_written_snapshot_cannot_be_read(scorer: Scorer, memory: MemoryStore) -> None:
    """409: what is not whole is not served, not even by id."""
    meta = publish(memory.store, scorer, {"a": ROWS["0"]}, active=False)
    memory.store.control.mark(meta.snapshot, SnapshotState.WRITING)
    with serving(scorer, memory) as client:
        assert client.get("/score/a", params={"snapshot": "1-A"}).status_code == 409


def test_a_lost_part_of_a_resident_snapshot_is_no_404(scorer: Scorer, memory: MemoryStore) -> None:
    """503, as everywhere else."""
    meta = publish(memory.store, scorer, {"a": ROWS["0"]})
    memory.lose_bucket(meta, "a")
    with serving(scorer, memory) as client:
        assert client.get("/score/a", params={"snapshot": "1-A"}).status_code == 503
        memory.failure = StoreDown("gone")
        answer = client.get("/score/a", params={"snapshot": "1-A"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


def test_the_time_is_told_by_stage(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """Server-Timing names the stages that a request went through, in order."""
    publish(memory.store, scorer, {"a": ROWS["0"]})
    settings = service_settings(scorer, features=_features(tmp_path / "f.parquet", {"new": ROWS["1"]}))
    with serving(scorer, memory, settings) as client:
        assert _stages(client, "a") == ["lookup"]
        assert _stages(client, "new") == ["lookup", "features", "encode", "queue", "forward"]


def test_the_answer_is_counted_by_what_it_was(scorer: Scorer, memory: MemoryStore) -> None:
    """Look-ups by outcome, rejections by code, the active snapshot and its parity are metrics."""
    publish(memory.store, scorer, {"a": ROWS["0"], "bad": BAD})
    with serving(scorer, memory) as client:
        for entity in ("a", "a", "bad", "nobody"):
            client.get(f"/score/{entity}")
        client.post("/score", json={"items": [{"features": BAD}]})
        text = client.get("/metrics").text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert [found["forescore_lookups_total", outcome] for outcome in ("hit", "rejected", "absent")] == [2, 1, 1]
    assert found["forescore_rejections_total", "missing"] == 1
    assert found["forescore_snapshot_info", "purchase", "1", "1-A"] == 1
    assert (found["forescore_parity_exact",], found["forescore_breaker_open",]) == (1, 0)
    assert found["forescore_requests_total", "/score/{entity_id}", "200"] == 2
    assert found["forescore_pointer_age_seconds",] < 60 < found["forescore_snapshot_age_seconds",]


def test_every_kind_of_feature_and_output_is_the_same_both_ways(everything: Scorer, tmp_path: Path) -> None:
    """For a model of all kinds, cache and online print the same text for every entity."""
    table = every_feature_table(40, seed=3)
    rows = table.drop(["id"]).to_pylist()
    memory = MemoryStore("everything")
    publish(memory.store, everything, dict(zip(table["id"].to_pylist(), rows, strict=True)))
    renamed = table.set_column(0, "id", pa.array([f"new-{entity}" for entity in table["id"].to_pylist()]))
    pq.write_table(renamed, tmp_path / "f.parquet")
    settings = service_settings(everything, features=str(tmp_path / "f.parquet"))
    with serving(everything, memory, settings) as client:
        for entity in table["id"].to_pylist():
            cached, online = client.get(f"/score/{entity}"), client.get(f"/score/new-{entity}")
            assert (cached.json().get("scores"), online.json().get("scores")) != (None, None)
            assert _told(cached.json()) == _told(online.json())
            assert {np.float32(score).dtype for score in cached.json()["scores"].values()} == {np.dtype("float32")}


def _told(body: dict[str, object]) -> object:
    return body["scores"], body["prediction"]


def _stages(client: TestClient, entity: str) -> list[str]:
    return [stage.split(";")[0] for stage in client.get(f"/score/{entity}").headers["server-timing"].split(", ")]


def _count_reads(memory: MemoryStore) -> list[list[str]]:
    asked: list[list[str]] = []
    read = memory.async_store.features.read

    async def counted(ids: list[str]) -> list[bytes | None]:
        asked.append(list(ids))
        return await read(ids)

    memory.async_store.features.read = counted  # type: ignore[method-assign,assignment]
    return asked


async def _fails(_: object) -> list[bytes | None]:
    raise StoreDown("gone")
