from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support.publish import bits, publish
from support.services import service_settings, serving

from shared.encode import Encoded
from shared.errors import StoreDown
from shared.scorer import Scorer
from shared.snapshot import Lookup, SnapshotMeta
from shared.testing.bundles import every_feature_table
from shared.testing.store import MemoryStore

ROWS = {
    "0": {"visits": 1, "returns": 0, "basket": 2},
    "1": {"visits": 0, "returns": 3, "basket": 1},
    "2": {"visits": 2, "returns": 1, "basket": 0},
    "3": {"visits": 1, "returns": 1, "basket": 1},
}
SCORES = [0.8581, 0.31, 0.7311, 0.69]
BAD = {"visits": 1, "returns": 0}


def _post(client: TestClient, *items: object) -> list[dict[str, Any]]:
    answer = client.post("/score", json={"items": list(items)})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def _rounded(results: list[dict[str, Any]]) -> list[float | None]:
    return [round(one["scores"]["buys"], 4) if "scores" in one else None for one in results]


def test_inline_features_are_scored_in_order(scorer: Scorer, memory: MemoryStore) -> None:
    """The four purchase rows give 0.8581, 0.31, 0.7311 and 0.69, each in its place."""
    with serving(scorer, memory) as client:
        results = _post(client, *({"entity_id": number, "features": ROWS[str(number)]} for number in range(4)))

    assert _rounded(results) == SCORES
    assert [one["entity_id"] for one in results] == ["0", "1", "2", "3"]
    assert {one["source"] for one in results} == {"online"}


def test_a_bad_row_costs_itself_only(scorer: Scorer, memory: MemoryStore) -> None:
    """A row of two features gets 422 with code and field before any scoring; its neighbours get their scores."""
    with serving(scorer, memory) as client:
        results = _post(client, {"features": ROWS["0"]}, {"entity_id": "x", "features": BAD}, {"features": ROWS["1"]})

    assert _rounded(results) == [0.8581, None, 0.31]
    error = results[1]["error"]
    assert results[1]["entity_id"] == "x"
    assert (error["status"], error["code"], error["field"]) == (422, "missing", "basket")
    assert error["type"] == "urn:forescore:problem:row-rejected"


def test_every_kind_of_item_has_its_own_answer(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """Known, unseen, unknown, rejected, inline and malformed in one request: each is answered in its place."""
    publish(memory.store, scorer, {"0": ROWS["0"], "bad": BAD})
    pq.write_table(
        pa.table({"customer_id": ["new"], "visits": [0], "returns": [3], "basket": [1]}), tmp_path / "f.parquet"
    )
    items: list[object] = [
        {"entity_id": "0"},
        {"entity_id": "new"},
        {"entity_id": "nobody"},
        {"entity_id": "bad"},
        {"features": ROWS["2"]},
        {"entity_id": "0", "features": ROWS["3"]},
        {"entity_id": 1.5},
        {"entity_id": "y", "features": {"visit": 1}},
        "0",
        {"entity_id": "0"},
    ]
    with serving(scorer, memory, service_settings(scorer, features=str(tmp_path / "f.parquet"))) as client:
        results = _post(client, *items)

    assert _rounded(results) == [0.8581, 0.31, None, None, 0.7311, 0.69, None, None, None, 0.8581]
    told = [one["error"]["type"].rpartition(":")[2] if "error" in one else one["source"] for one in results]
    refused = ["invalid-entity-id", "row-rejected", "bad-request"]
    assert told == ["cache", "online", "unknown-entity", "row-rejected", "online", "online", *refused, "cache"]


def test_features_that_a_caller_makes_up_are_never_kept(scorer: Scorer, memory: MemoryStore) -> None:
    """What-if is a question: the entity's cached score stays what it was, and no new entity comes to be."""
    meta = publish(memory.store, scorer, {"0": ROWS["0"]})
    with serving(scorer, memory) as client:
        _post(client, {"entity_id": "0", "features": ROWS["1"]}, {"entity_id": "new", "features": ROWS["1"]})
        assert client.get("/score/0").json()["scores"] == {"buys": 0.8581489}
        assert client.get("/score/new").status_code == 404
    assert memory.store.writer.count(meta) == 1


def test_one_look_up_one_question_and_one_forward_pass(scorer: Scorer, memory: MemoryStore) -> None:
    """A request of many items costs what a request of one costs: no round trip and no pass for each item."""
    publish(memory.store, scorer, {"0": ROWS["0"]})
    look_ups, passes = _count_lookups(memory), _Counted(scorer)
    asked = _count_reads(memory)
    with serving(passes, memory) as client:  # type: ignore[arg-type]
        for number in range(8):
            client.put(f"/features/n{number}", json={"features": ROWS["1"]})
        look_ups.clear()
        asked.clear()
        _post(
            client, *({"entity_id": f"n{number}"} for number in range(8)), {"features": ROWS["2"]}, {"entity_id": "0"}
        )

    ids = [f"n{number}" for number in range(8)]
    assert look_ups == [[*ids, "0"]]
    assert asked == [ids]
    assert passes.rows == [9]


def test_an_entity_that_is_asked_for_twice_is_looked_up_once(scorer: Scorer, memory: MemoryStore) -> None:
    """And answered twice, in both places, whether the ids came as text or as integers."""
    publish(memory.store, scorer, ROWS)
    look_ups = _count_lookups(memory)
    with serving(scorer, memory) as client:
        results = _post(client, {"entity_id": 1}, {"entity_id": "0"}, {"entity_id": "1"})

    assert look_ups == [["1", "0"]]
    assert _rounded(results) == [0.31, 0.8581, 0.31]


@pytest.mark.parametrize("entity_id", [5, -7, 9007199254740993, 2**63, 2**64 + 1])
def test_an_integer_id_is_found_as_the_text_it_is_written_as(
    scorer: Scorer, memory: MemoryStore, entity_id: int
) -> None:
    """An id stored from an int column, asked as JSON number, as JSON text and in the path, is one entity."""
    publish(memory.store, scorer, {str(entity_id): ROWS["0"]})
    with serving(scorer, memory) as client:
        answer = client.post(
            "/score", content=f'{{"items": [{{"entity_id": {entity_id}}}, {{"entity_id": "{entity_id}"}}]}}'
        )
        assert _rounded(answer.json()["results"]) == [0.8581, 0.8581]
        assert client.get(f"/score/{entity_id}").status_code == 200


@pytest.mark.parametrize("text", ["20862292665203397e5", "5.0", "1e3", "true", "null", '["5"]'])
def test_an_id_that_is_no_integer_and_no_text_is_sent_back(scorer: Scorer, memory: MemoryStore, text: str) -> None:
    """422 for that item: send it as text. Nothing is rounded or spelled out."""
    publish(memory.store, scorer, {"5": ROWS["0"], "1000": ROWS["0"]})
    with serving(scorer, memory) as client:
        answer = client.post("/score", content=f'{{"items": [{{"entity_id": {text}}}, {{"entity_id": "5"}}]}}')

    refused, found = answer.json()["results"]
    assert (refused["error"]["status"], refused["entity_id"]) == (422, None)
    assert "text" in refused["error"]["detail"]
    assert found["entity_id"] == "5"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ('"NaN"', "not_a_number"),
        ('"inf"', "not_a_number"),
        ("true", "wrong_type"),
        ("null", "missing"),
        ('""', "missing"),
        ("9007199254740993", "not_exact"),
        ("18446744073709551617", "not_exact"),
        ("1e39", "not_finite"),
        ("1e999", "not_finite"),
        ("[1]", "wrong_type"),
    ],
)
def test_a_value_that_breaks_a_rule_costs_its_item(scorer: Scorer, memory: MemoryStore, value: str, code: str) -> None:
    """422 with the code of the rule and the field's name, beside neighbours that are scored."""
    good = orjson.dumps({"features": ROWS["0"]}).decode()
    body = f'{{"items": [{good}, {{"features": {{"visits": 1, "returns": {value}, "basket": 2}}}}]}}'
    with serving(scorer, memory) as client:
        found, refused = client.post("/score", content=body).json()["results"]

    assert _rounded([found]) == [0.8581]
    assert (refused["error"]["status"], refused["error"]["code"], refused["error"]["field"]) == (422, code, "returns")


@pytest.mark.parametrize("body", ["", "{", '{"items": [NaN]}', '{"items": [Infinity]}', "[]", '{"item": []}', "\x00"])
def test_a_broken_body_is_a_bad_request_and_the_service_lives(scorer: Scorer, memory: MemoryStore, body: str) -> None:
    """400 as a problem; the next request is answered."""
    with serving(scorer, memory) as client:
        answer = client.post("/score", content=body)
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:forescore:problem:bad-request")
        assert _rounded(_post(client, {"features": ROWS["0"]})) == [0.8581]


def test_limits_hold_before_anything_is_parsed_or_scored(scorer: Scorer, memory: MemoryStore) -> None:
    """413 as a problem, for bytes whether their number was declared or not, and for items."""
    with serving(scorer, memory, service_settings(scorer, max_body_bytes=1024, max_items=3)) as client:
        declared = client.post("/score", content=b"[" * 1025)
        streamed = client.post("/score", content=(b"[" * 512 for _ in range(3)))
        many = client.post("/score", json={"items": [{"entity_id": "0"}] * 4})

    assert [answer.status_code for answer in (declared, streamed, many)] == [413, 413, 413]
    assert [answer.json()["type"].rpartition(":")[2] for answer in (declared, streamed, many)] == [
        "body-too-large",
        "body-too-large",
        "too-many-items",
    ]


def test_no_items_is_no_mistake(scorer: Scorer, memory: MemoryStore) -> None:
    """Nothing asked, nothing answered."""
    with serving(scorer, memory) as client:
        assert client.post("/score", json={"items": []}).json() == {"snapshot": None, "results": []}


def test_without_a_store_inline_features_are_scored(scorer: Scorer, memory: MemoryStore) -> None:
    """An outage costs the items that need the store, each with a 503 of its own."""
    publish(memory.store, scorer, ROWS)
    with serving(scorer, memory) as client:
        memory.failure = StoreDown("gone")
        results = _post(client, {"entity_id": "0"}, {"entity_id": "0", "features": ROWS["0"]})

    assert (results[0]["error"]["status"], results[0]["error"]["type"]) == (
        503,
        "urn:forescore:problem:score-unavailable",
    )
    assert _rounded(results)[1] == 0.8581


def test_a_row_is_scored_alike_in_whatever_company(everything: Scorer, memory: MemoryStore) -> None:
    """Alone, among forty, shuffled, from the cache: the same 32 bits for every row and every output."""
    table = every_feature_table(40, seed=5)
    rows = dict(zip(table["id"].to_pylist(), table.drop(["id"]).to_pylist(), strict=True))
    publish(memory.store, everything, rows)
    inline = [{"entity_id": entity, "features": row} for entity, row in rows.items()]
    with serving(everything, memory) as client:
        cached = _post(client, *({"entity_id": entity} for entity in rows))
        together = _post(client, *inline)
        shuffled = _post(client, *reversed(inline))[::-1]
        alone = [_post(client, item)[0] for item in inline]

    expected = [_bits(one) for one in cached]
    assert expected == [_bits(one) for one in together] == [_bits(one) for one in shuffled]
    assert expected == [_bits(one) for one in alone]
    assert sum("scores" in one for one in cached) == 40


def test_json_and_columns_are_one_door(everything: Scorer, memory: MemoryStore) -> None:
    """Any row gets by POST what the batch's column door gives it: the same score, or the same code and field."""
    good = every_feature_table(1).drop(["id"]).to_pylist()[0] | {"member": True}
    odd: dict[str, list[object]] = {
        "age": [None, "", " 7 ", "NaN", "1_000", "1e2", "1e39", True, 2**53, 2**53 + 1, -0.0],
        "amount": [None, "", "abc", -5, 1e30, "12.5"],
        "contract": [None, "", "month", "Month", "decade"],
        "region": [None, "", "2", "02", 2.5, 9, "x"],
        "member": [None, "", "TRUE", "0", 1, 2, "yes"],
        "tokens": [None, [0] * 6, [0] * 5, [11] * 6, "[0, 1, 2, 3, 4, 5]"],
    }
    rows = [good | {name: value} for name, values in odd.items() for value in values]
    with serving(everything, memory) as client:
        results = _post(client, *({"features": row} for row in rows))
    for row, result in zip(rows, results, strict=True):
        _require_same(result, everything.encoder.columns(_one_row(row)), everything)


def _one_row(row: dict[str, object]) -> pa.Table:
    return pa.table({name: pa.array([value]) for name, value in row.items()})


def _require_same(result: dict[str, Any], by_column: Encoded, scorer: Scorer) -> None:
    if "error" in result:
        (rejection,) = by_column.rejections
        assert (result["error"]["code"], result["error"]["field"]) == (rejection.code.text, rejection.field)
    else:
        expected = scorer.score(by_column)[0]
        assert [bits(score) for score in result["scores"].values()] == [bits(float(score)) for score in expected]


def _bits(result: dict[str, Any]) -> list[int]:
    return [bits(score) for score in result["scores"].values()]


class _Counted:
    """A scorer that keeps how many rows each pass had."""

    def __init__(self, scorer: Scorer) -> None:
        self.rows: list[int] = []
        self._scorer = scorer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    def score(self, encoded: Encoded) -> Any:
        self.rows.append(len(encoded))
        return self._scorer.score(encoded)


def _count_lookups(memory: MemoryStore) -> list[list[str]]:
    asked: list[list[str]] = []
    lookup = memory.async_store.reader.lookup

    async def counted(meta: SnapshotMeta, ids: list[str]) -> list[Lookup]:
        asked.append(list(ids))
        return await lookup(meta, ids)

    memory.async_store.reader.lookup = counted  # type: ignore[method-assign,assignment]
    return asked


def _count_reads(memory: MemoryStore) -> list[list[str]]:
    asked: list[list[str]] = []
    read = memory.async_store.features.read

    async def counted(ids: list[str]) -> list[bytes | None]:
        asked.append(list(ids))
        return await read(ids)

    memory.async_store.features.read = counted  # type: ignore[method-assign,assignment]
    return asked
