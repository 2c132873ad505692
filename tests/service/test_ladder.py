"""While the store cannot tell, the snapshot's own file does; then the model; then a clear refusal."""

import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient
from support.publish import publish, write
from support.servers import dead_port, hung_server, start_valkey, wait_until
from support.services import service_settings, serving
from support.snapshot_files import leave_file
from support.snapshots import promote
from support.wires import parrot

from shared.codes import Code
from shared.errors import StoreDown, StoreRefused
from shared.scorer import Scorer
from shared.settings import RedisSettings, Settings
from shared.snapshot import Lookup, SnapshotMeta
from shared.snapshot_file import SnapshotFile
from shared.store.connect import open_store
from shared.store.interfaces import AsyncStore
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}
OTHER = {"visits": 0, "returns": 3, "basket": 1}
KNOWN, UNSEEN = 0.8581489, 0.3100255


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def parquet(tmp_path: Path) -> str:
    """A source of features that does not lie in the store."""
    columns = {"visits": [0], "returns": [3], "basket": [1]}
    pq.write_table(pa.table({"customer_id": ["unseen"], **columns}), tmp_path / "features.parquet")
    return str(tmp_path / "features.parquet")


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore("purchase")


def _settings(scorer: Scorer, runs: Path, features: str = "none", **service: object) -> Settings:
    given = {"file_timeout_ms": 5_000, **service}
    return service_settings(scorer, features=features, **given).model_copy(update={"runs": runs})


def _on_wire(scorer: Scorer, runs: Path, url: str, features: str) -> Settings:
    redis = RedisSettings.model_validate({"url": SecretStr(url), "breaker_seconds": 0.2})
    settings = service_settings(scorer, features=features, redis=redis, deadline_ms=1000, file_timeout_ms=500)
    return settings.model_copy(update={"runs": runs})


def _leave(memory: MemoryStore, scorer: Scorer, runs: Path, snapshot: str = "1-A", **changes: object) -> Path:
    meta = publish(memory.store, scorer, {"known": ROW}, snapshot=snapshot, **changes)
    return leave_file(runs, memory.store, meta, snapshot)


def _require_the_ladder(client: TestClient) -> None:
    """The known from the file, the unseen from the model, a stranger 503; in a list as alone."""
    known, unseen, stranger = (client.get(f"/score/{entity}") for entity in ("known", "unseen", "stranger"))
    assert (known.status_code, known.json()["source"], known.json()["scores"]) == (200, "file", {"buys": KNOWN})
    assert known.headers["cache-status"] == "forescore; hit; detail=snapshot-file"
    assert int(known.headers["age"]) == known.json()["age_seconds"]
    assert (unseen.json()["source"], unseen.json()["scores"]) == ("online", {"buys": UNSEEN})
    assert (stranger.status_code, stranger.headers["retry-after"]) == (503, "2")
    items = [{"entity_id": entity} for entity in ("known", "unseen", "stranger")]
    results = client.post("/score", json={"items": items}).json()["results"]
    assert [one.get("source", one.get("error", {}).get("status")) for one in results] == ["file", "online", 503]


def _metric(client: TestClient, name: str) -> float:
    line = next(line for line in client.get("/metrics").text.splitlines() if line.startswith(f"{name} "))
    return float(line.split()[-1])


@pytest.mark.parametrize("failure", [StoreDown("gone"), StoreRefused("read-only")])
def test_a_store_that_fails_is_stood_in_for(
    scorer: Scorer, memory: MemoryStore, runs: Path, parquet: str, failure: Exception
) -> None:
    """The same score under the same tag, whichever rung it is from; the probe says that a file stands in."""
    _leave(memory, scorer, runs)
    with serving(scorer, memory, _settings(scorer, runs, parquet)) as client:
        before = client.get("/score/known").json()
        memory.failure = failure  # type: ignore[assignment]
        _require_the_ladder(client)
        now = client.get("/score/known")
        assert {**now.json(), "source": "cache", "age_seconds": before["age_seconds"]} == before
        assert client.get("/score/known", headers={"If-None-Match": now.headers["etag"]}).status_code == 304
        wait_until(lambda: client.get("/readyz").json()["status"] == "degraded")
        assert client.get("/readyz").json()["reason"].endswith("scores come from the file of snapshot 1-A")
        assert _metric(client, 'forescore_answers_total{rung="file"}') == 4
        assert _metric(client, 'forescore_answers_total{rung="refused"}') == 2
        assert _metric(client, 'forescore_rung_failures_total{reason="down",rung="store"}') > 0
        assert _metric(client, 'forescore_stage_duration_seconds_count{stage="file"}') > 0
        assert _metric(client, "forescore_snapshot_file_open") == 1
        memory.failure = None
        wait_until(lambda: client.get("/score/known").json()["source"] == "cache")


@pytest.mark.parametrize(
    "reply",
    [
        b"-LOADING Valkey is loading the dataset in memory\r\n",
        b"-NOAUTH Authentication required.\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        None,
    ],
    ids=["loading", "noauth", "readonly", "nonsense", "hung", "refused"],
)
def test_a_service_that_never_saw_its_store_answers_from_the_file(
    scorer: Scorer, memory: MemoryStore, runs: Path, parquet: str, reply: bytes | None
) -> None:
    """Nothing is known of the pointer: the newest promoted snapshot of this bundle is served, within the deadline."""
    _leave(memory, scorer, runs)
    with _said(reply) as port:
        settings = _on_wire(scorer, runs, f"redis://127.0.0.1:{port}", parquet)
        with serving(scorer, settings=settings) as client:
            _require_the_ladder(client)
            assert client.get("/score/known").json()["snapshot"] == "1-A"


def _said(reply: bytes | None) -> AbstractContextManager[int]:
    if reply is None:
        return nullcontext(dead_port())
    return hung_server() if reply == b"" else parrot(reply)


def test_a_real_store_is_killed_and_comes_back_empty(scorer: Scorer, runs: Path, tmp_path: Path, parquet: str) -> None:
    """Killed, it is stood in for; come back empty, still; published again, it answers itself."""
    with start_valkey(tmp_path) as server:
        settings = _on_wire(scorer, runs, server.url, parquet)
        with open_store(settings, "purchase") as store:
            leave_file(runs, store, publish(store, scorer, {"known": ROW}))
        with serving(scorer, settings=settings) as client:
            assert client.get("/score/known").json()["source"] == "cache"
            server.kill()
            _require_the_ladder(client)
            server.start()
            wait_until(lambda: "is empty" in client.get("/readyz").json().get("reason", ""))
            _require_the_ladder(client)
            with open_store(settings, "purchase") as store:
                publish(store, scorer, {"known": ROW})
            wait_until(lambda: client.get("/score/known").json()["source"] == "cache")


@pytest.mark.parametrize("harm", ["bucket", "value"])
def test_what_the_store_lost_is_read_from_the_file(scorer: Scorer, memory: MemoryStore, runs: Path, harm: str) -> None:
    """A lost bucket and a corrupt value cost nothing where the file has them."""
    meta = publish(memory.store, scorer, {"known": ROW, "other": OTHER})
    leave_file(runs, memory.store, meta)
    if harm == "bucket":
        memory.lose_bucket(meta, "known")
    else:
        memory.corrupt(meta, "known")
    with serving(scorer, memory, _settings(scorer, runs)) as client:
        results = client.post("/score", json={"items": [{"entity_id": "known"}, {"entity_id": "other"}]}).json()
        assert results["snapshot"] == meta.snapshot
        assert results["results"][0]["source"] == "file"
        assert results["results"][1]["source"] == ("cache" if harm == "value" else "file")


def test_a_rejection_in_the_file_is_one(scorer: Scorer, memory: MemoryStore, runs: Path) -> None:
    """Known and rejected is no outage: 422 with the code, as from the store."""
    meta = publish(memory.store, scorer, {"known": ROW, "bad": {**ROW, "visits": "many"}})
    leave_file(runs, memory.store, meta)
    with serving(scorer, memory, _settings(scorer, runs)) as client:
        before = client.get("/score/bad")
        memory.failure = StoreDown("gone")
        now = client.get("/score/bad")
        assert (now.status_code, now.json()["code"]) == (422, Code.NOT_A_NUMBER.text)
        assert now.json()["detail"] == before.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "status", "parity"),
    [({"bundle_digest": "c" * 64}, 503, None), ({"golden_digest": "c" * 64}, 200, "tolerance")],
)
def test_only_files_of_this_bundle_are_served(
    scorer: Scorer, memory: MemoryStore, runs: Path, changes: dict[str, object], status: int, parity: str | None
) -> None:
    """Another bundle's file is not used; one that was scored to other bits is told as such."""
    snapshot = "9-A" if "bundle_digest" in changes else "1-A"
    _leave(memory, scorer, runs, snapshot, model_version=snapshot[0], **changes)
    with serving(scorer, memory, _settings(scorer, runs)) as client:
        memory.failure = StoreDown("gone")
        answer = client.get("/score/known")
        assert (answer.status_code, answer.json().get("parity")) == (status, parity)


def test_without_the_file_it_is_as_before(scorer: Scorer, memory: MemoryStore, runs: Path) -> None:
    """No file, or that of another snapshot: a refusal with Retry-After, and never yesterday's number."""
    _leave(memory, scorer, runs, "1-A")
    publish(memory.store, scorer, {"known": OTHER}, snapshot="1-B")
    with serving(scorer, memory, _settings(scorer, runs)) as client:
        memory.failure = StoreDown("gone")
        answer = client.get("/score/known")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert _metric(client, 'forescore_rung_failures_total{reason="missing",rung="file"}') == 1
        assert _metric(client, "forescore_snapshot_file_open") == 0


def test_the_file_follows_the_pointer(scorer: Scorer, memory: MemoryStore, runs: Path) -> None:
    """After a flip the new snapshot's file is open, before it is needed, and the old one is closed."""
    _leave(memory, scorer, runs, "1-A")
    with serving(scorer, memory, _settings(scorer, runs)) as client:
        meta = publish(memory.store, scorer, {"known": OTHER}, snapshot="1-B")
        leave_file(runs, memory.store, meta, "1-B")
        checks = "/readyz?verbose"
        wait_until(lambda: client.get(checks).json()["checks"]["file"] == {"status": "ok", "snapshot": "1-B"})
        memory.failure = StoreDown("gone")
        answer = client.get("/score/known").json()
        assert (answer["source"], answer["snapshot"], answer["scores"]) == ("file", "1-B", {"buys": UNSEEN})


def test_a_flip_that_was_not_seen_is_not_served(scorer: Scorer, memory: MemoryStore, runs: Path) -> None:
    """Promoted while the store cannot be reached from here: the last known snapshot's file stands in until then."""
    _leave(memory, scorer, runs, "1-A")
    with serving(scorer, memory, _settings(scorer, runs)) as client:
        memory.failure = StoreDown("gone")
        assert client.get("/score/known").json()["snapshot"] == "1-A"
        memory.failure = None
        write(memory.store, _renamed(memory, "1-B"), {"known": [0.25]})
        promote(memory.store, "1-B")
        leave_file(runs, memory.store, _renamed(memory, "1-B"), "1-B")
        opened = {"status": "ok", "snapshot": "1-B"}
        wait_until(lambda: client.get("/readyz?verbose").json()["checks"]["file"] == opened)
        memory.failure = StoreDown("gone")
        assert client.get("/score/known").json()["scores"] == {"buys": 0.25}


def _renamed(memory: MemoryStore, snapshot: str) -> SnapshotMeta:
    first = memory.store.catalogue.snapshots()[-1].meta
    return first.model_copy(update={"snapshot": snapshot, "run_key": snapshot})


def test_a_slow_disk_holds_up_nobody(
    scorer: Scorer, memory: MemoryStore, runs: Path, parquet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that hangs is given up within its budget, costs no probe, and is not waited for again until it ends."""
    _leave(memory, scorer, runs)
    gate = threading.Event()
    real: Callable[..., list[Lookup]] = SnapshotFile.lookup
    reads: list[object] = []

    def hang(self: SnapshotFile, ids: list[str]) -> list[Lookup]:
        reads.append(ids)
        gate.wait(30)
        return real(self, ids)

    with serving(scorer, memory, _settings(scorer, runs, parquet, file_timeout_ms=20)) as client:
        monkeypatch.setattr(SnapshotFile, "lookup", hang)
        memory.failure = StoreDown("gone")
        try:
            assert client.get("/score/known").status_code == 503
            assert client.get("/score/unseen").json()["source"] == "online"
            assert client.get("/livez").status_code == 200
            assert len(reads) == 1
            assert _metric(client, 'forescore_rung_failures_total{reason="late",rung="file"}') == 2
        finally:
            gate.set()
        wait_until(lambda: client.get("/score/known").json().get("source") == "file")


def test_age_and_wishes_are_heeded(scorer: Scorer, memory: MemoryStore, runs: Path, parquet: str) -> None:
    """An answer from the file is as old as its score: limits and wishes hold as for the store's."""
    meta = publish(memory.store, scorer, {"known": ROW, "unseen": OTHER})
    leave_file(runs, memory.store, meta)
    with serving(scorer, memory, _settings(scorer, runs, parquet)) as client:
        memory.failure = StoreDown("gone")

        def ask(entity: str, wish: str) -> tuple[int, str | None, str | None]:
            answer = client.get(f"/score/{entity}", headers={"Cache-Control": wish})
            return answer.status_code, answer.json().get("source"), answer.headers.get("cache-status")

        assert ask("known", "only-if-cached") == (200, "file", "forescore; hit; detail=snapshot-file")
        assert ask("known", "max-age=60") == (200, "file", "forescore; hit; detail=snapshot-file-not-rescored")
        assert ask("unseen", "no-cache") == (200, "online", "forescore; fwd=request")
        assert ask("known", "max-age=60, only-if-cached")[0] == 504
        assert ask("stranger", "only-if-cached")[0] == 504
    with serving(scorer, memory, _settings(scorer, runs, parquet, max_age_seconds=60)) as client:
        assert client.get("/score/known").status_code == 503
        assert client.get("/score/unseen").json()["source"] == "online"


def test_a_store_without_a_pointer_is_stood_in_for(scorer: Scorer, memory: MemoryStore, runs: Path) -> None:
    """A service that starts beside an emptied store serves what was promoted last, and calls nobody unknown for it."""
    _leave(memory, scorer, runs)
    memory.lose_everything()
    with serving(scorer, memory, _settings(scorer, runs)) as client:
        assert client.get("/score/known").json()["source"] == "file"
        assert client.get("/score/stranger").status_code == 404


def test_without_a_store_the_file_is_all_there_is(
    scorer: Scorer, memory: MemoryStore, runs: Path, parquet: str
) -> None:
    """It is ready and says so everywhere; who is not in the file is scored from other sources, or unknown."""
    _leave(memory, scorer, runs)
    settings = _settings(scorer, runs, f"store,{parquet}").model_copy(update={"store": "none"})
    with serving(scorer, _no_store, settings) as client:
        told = client.get("/readyz?verbose").json()
        assert (told["status"], told["checks"]["store"]) == ("ready", {"status": "none"})
        assert told["reason"] == "there is no store: scores are looked up in the snapshot's file alone"
        answer = client.get("/score/known")
        assert (answer.json()["source"], answer.json()["snapshot"]) == ("file", "1-A")
        assert client.get("/score/unseen").json()["source"] == "online"
        assert client.get("/score/stranger").status_code == 404
        assert client.get("/score/known?snapshot=1-A").json()["source"] == "file"
        put = client.put("/features/new", json={"features": ROW})
        assert (put.status_code, put.json()["type"]) == (409, "urn:forescore:problem:features-not-kept")
        assert "FORESCORE_STORE=none" in put.json()["detail"]
        assert client.delete("/features/new").status_code == 409
        listed = client.get("/snapshots").json()
        assert (listed["source"], listed["active"], len(listed["snapshots"])) == ("file", "1-A", 1)
        assert _metric(client, "forescore_store_configured") == 0
        meta = publish(memory.store, scorer, {"known": OTHER}, snapshot="1-B")
        leave_file(runs, memory.store, meta, "1-B")
        wait_until(lambda: client.get("/score/known").json()["snapshot"] == "1-B")


def test_without_a_store_and_without_a_file_it_says_what_is_missing(scorer: Scorer, runs: Path, parquet: str) -> None:
    """It still scores what it can, and the probe names the folder's setting."""
    settings = _settings(scorer, runs, parquet).model_copy(update={"store": "none"})
    with serving(scorer, _no_store, settings) as client:
        assert client.get("/readyz").json()["status"] == "degraded"
        assert "set FORESCORE_RUNS" in client.get("/readyz").json()["reason"]
        assert client.get("/score/unseen").json()["source"] == "online"
        assert client.get("/score/known").status_code == 503


def _no_store(settings: Settings, model: str) -> AbstractAsyncContextManager[AsyncStore]:
    raise AssertionError("no store is opened")
