from support.publish import publish
from support.services import serving

from shared.errors import StoreDown
from shared.scorer import Scorer
from shared.snapshot import SnapshotState
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}
NOW = 1_800_000_000


def test_the_contract_names_everything(everything: Scorer) -> None:
    """Features with rules and categories, tensors, outputs with classes and score names, versions and digests."""
    with serving(everything, MemoryStore("everything")) as client:
        card = client.get("/model").json()

    assert (card["model"], card["model_version"], card["entity"]) == ("everything", "1", "id")
    assert [feature["name"] for feature in card["features"]] == [one.name for one in everything.bundle.schema.features]
    assert {feature["name"]: feature.get("vocabulary") for feature in card["features"]}["region"] == [1, 2, 3]
    assert {tensor["name"]: (tensor["shape"], tensor["dtype"]) for tensor in card["inputs"]} == {
        "numeric": ([3], "float32"),
        "codes": ([2], "int64"),
        "embedding": ([4], "float32"),
        "tokens": ([6], "int64"),
        "mask": ([6], "bool"),
    }
    assert card["outputs"][1]["classes"] == ["small", "medium", "large"]
    assert card["outputs"][1]["scores"] == ["plan.small", "plan.medium", "plan.large"]
    assert (card["golden_digest"], card["bundle_digest"]) == (everything.golden_digest, everything.bundle.digest)
    assert (card["engine"], card["device"], card["tile"]["rows"]) == ("export", "cpu", everything.tile.rows)
    assert card["torch_version"].startswith("2.")


def test_snapshots_are_listed_with_what_they_are(scorer: Scorer, scorer2: Scorer, memory: MemoryStore) -> None:
    """Newest first: which is active, which is held, how many rows they account for, and how old they are."""
    publish(
        memory.store, scorer, {"a": ROW, "bad": {}}, scored_at=NOW - 100, scored=1, rejected=1, data_as_of=NOW - 200
    )
    publish(memory.store, scorer2, {"a": ROW}, scored_at=NOW - 50, active=False)
    memory.store.control.mark("2-A", SnapshotState.HELD)
    with serving(scorer, memory, wall=FrozenClock(NOW)) as client:
        body = client.get("/snapshots").json()

    assert (body["model"], body["active"]) == ("purchase", "1-A")
    held, active = body["snapshots"]
    assert (held["snapshot"], held["state"], held["active"], held["parity"]) == ("2-A", "held", False, "tolerance")
    assert (active["state"], active["active"], active["parity"], active["age_seconds"]) == ("ready", True, "exact", 100)
    assert (active["input_rows"], active["scored"], active["rejected"], active["duplicate"]) == (2, 1, 1, 0)
    assert active["data_as_of"] == "2027-01-15T07:56:40Z"


def test_without_the_store_the_list_cannot_be_had(scorer: Scorer, memory: MemoryStore) -> None:
    """503 with Retry-After; the contract is told all the same."""
    with serving(scorer, memory) as client:
        memory.failure = StoreDown("gone")
        answer = client.get("/snapshots")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert client.get("/model").status_code == 200


def test_the_first_page_leads_on(scorer: Scorer, memory: MemoryStore) -> None:
    """Whoever finds the port finds the documentation."""
    with serving(scorer, memory) as client:
        assert client.get("/").json()["docs"] == "/docs"
        assert client.get("/docs").status_code == 200
