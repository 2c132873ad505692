"""The purchase model: the four scores that anyone can check by hand, by every door."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support.examples import EXAMPLES
from support.services import serving

from batch_job.job import Means
from batch_job.manifest import RunManifest
from batch_job.publish import publish_run
from batch_job.run import score_batch
from shared.bundle import Bundle
from shared.scorer import Scorer, open_scorer
from shared.testing.store import MemoryStore

PURCHASE = EXAMPLES / "purchase"
ROWS = ([1, 0, 2], [0, 3, 1], [2, 1, 0], [1, 1, 1])
SCORES = [0.8581, 0.31, 0.7311, 0.69]


@pytest.fixture(scope="module")
def scorer(purchase: Bundle) -> Scorer:
    return open_scorer(purchase, device="cpu")


@pytest.fixture
def run(purchase: Bundle, tmp_path: Path) -> RunManifest:
    """The table, scored in chunks of two."""
    return score_batch(PURCHASE / "table.csv", tmp_path / "run", 2, bundle=purchase)


@pytest.fixture
def client(scorer: Scorer, run: RunManifest) -> Iterator[TestClient]:
    """The service, over the published run."""
    memory = MemoryStore("purchase")
    publish_run(Path(run.output_path), memory.store, Means())
    with serving(scorer, memory) as client:
        yield client


def features(row: list[int]) -> dict[str, int]:
    return dict(zip(("visits", "returns", "basket"), row, strict=True))


def parts(run: RunManifest) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in run.part_paths(Path(run.output_path))])


def test_the_table_gives_the_scores_in_order(run: RunManifest) -> None:
    """Four rows in chunks of two: two parts, the ids 0 to 3 in order, and the scores that the weights give."""
    table = parts(run)

    assert len(run.parts) == 2
    assert table["entity_id"].to_pylist() == ["0", "1", "2", "3"]
    assert [round(score, 4) for score in table["buys"].to_pylist()] == SCORES


def test_the_cache_gives_the_scores(client: TestClient) -> None:
    """What the batch job published is what GET answers."""
    answers = [client.get(f"/score/{number}").json() for number in range(4)]

    assert [round(answer["scores"]["buys"], 4) for answer in answers] == SCORES
    assert {answer["source"] for answer in answers} == {"cache"}
    assert [answer["prediction"]["buys"] for answer in answers] == [True, False, True, True]


def test_inline_features_give_the_scores(client: TestClient) -> None:
    """POST /score computes for given features what the batch computed for the same rows, to the last digit."""
    items = [{"features": features(row)} for row in ROWS]
    results = client.post("/score", json={"items": items}).json()["results"]

    assert [round(result["scores"]["buys"], 4) for result in results] == SCORES
    assert [result["scores"] for result in results] == [client.get(f"/score/{n}").json()["scores"] for n in range(4)]


def test_the_unseen_get_the_scores_online(client: TestClient) -> None:
    """Four new customers with the same rows are scored online to the same digits."""
    for number, row in enumerate(ROWS):
        assert client.put(f"/features/new-{number}", json={"features": features(row)}).status_code == 204
        answer = client.get(f"/score/new-{number}").json()

        assert answer["source"] == "online"
        assert answer["scores"] == client.get(f"/score/{number}").json()["scores"]


def test_bad_rows_of_a_file_cost_themselves(purchase: Bundle, tmp_path: Path) -> None:
    """A row without its third feature, and a line of two features, are rejected by code; the four others are scored."""
    run = score_batch(PURCHASE / "bad_rows.csv", tmp_path / "run", 2, bundle=purchase)
    rejected = [row for row in parts(run).to_pylist() if row["status"] == "rejected"]
    scored = {row["entity_id"]: row["buys"] for row in parts(run).to_pylist() if row["status"] == "scored"}

    assert [(row["code"], row["field"]) for row in rejected] == [("missing", "basket"), ("malformed_line", None)]
    assert [round(scored[number], 4) for number in "0123"] == SCORES
    assert run.counts.input == run.counts.scored + run.counts.rejected == 6


def test_a_bad_item_of_a_request_costs_itself(client: TestClient) -> None:
    """An item with two features is refused before scoring, by the name of the third; its neighbours are scored."""
    bad = {"features": {"visits": 1, "returns": 0}}
    items = [{"features": features(ROWS[0])}, bad, {"features": features(ROWS[1])}]
    first, second, third = client.post("/score", json={"items": items}).json()["results"]

    assert [round(one["scores"]["buys"], 4) for one in (first, third)] == SCORES[:2]
    assert (second["error"]["status"], second["error"]["code"], second["error"]["field"]) == (422, "missing", "basket")
