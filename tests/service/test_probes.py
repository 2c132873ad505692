import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support.publish import publish
from support.servers import wait_until
from support.services import opener, service_settings, serving

from service.app import create_app
from service.runtime import Dependencies
from shared.bundle import Bundle
from shared.encode import Encoded
from shared.errors import NotCertified, StoreDown
from shared.scorer import Scorer
from shared.settings import Settings
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}


def _client(
    memory: MemoryStore, settings: Settings, open_scorer: Callable[[Bundle, Settings], Scorer] | None = None
) -> TestClient:
    given = Dependencies(open_store=opener(memory))
    dependencies = given if open_scorer is None else Dependencies(open_store=opener(memory), open_scorer=open_scorer)
    return TestClient(create_app(settings, dependencies=dependencies))


def test_a_process_that_loads_is_alive_and_not_ready(scorer: Scorer, memory: MemoryStore) -> None:
    """While the model is loaded /livez answers, and score calls get 503 as a problem with Retry-After."""
    loaded = threading.Event()

    def slowly(_bundle: Bundle, _settings: Settings) -> Scorer:
        loaded.wait(timeout=60)
        return scorer

    with _client(memory, service_settings(scorer), slowly) as client:
        assert client.get("/livez").status_code == 200
        readiness = client.get("/readyz")
        assert (readiness.status_code, readiness.json()["status"]) == (503, "loading")
        assert readiness.headers["retry-after"] == "2"
        for answer in (client.get("/score/a"), client.post("/score", json={"items": []}), client.get("/model")):
            assert (answer.status_code, answer.json()["type"]) == (503, "urn:forescore:problem:not-ready")
            assert answer.headers["retry-after"] == "2"
        loaded.set()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/model").status_code == 200


def test_a_model_that_is_not_certified_is_never_ready(scorer: Scorer, memory: MemoryStore) -> None:
    """Golden rows that do not hold: the process stays up, is not ready, and says why."""

    def refuse(_bundle: Bundle, _settings: Settings) -> Scorer:
        raise NotCertified("golden row 3 scores otherwise on this host")

    with _client(memory, service_settings(scorer), refuse) as client:
        wait_until(lambda: client.get("/readyz").json()["status"] == "failed")
        assert client.get("/readyz").json() == {
            "status": "failed",
            "reason": "golden row 3 scores otherwise on this host",
        }
        assert client.get("/readyz").status_code == 503
        assert client.get("/livez").status_code == 200
        assert client.get("/score/a").status_code == 503


@pytest.mark.parametrize("what", ["missing", "changed"])
def test_a_bundle_that_fails_its_check_is_told(scorer: Scorer, memory: MemoryStore, tmp_path: Path, what: str) -> None:
    """No bundle, or one whose files are not what they were: not ready, with the reason."""
    path = tmp_path / "bundle"
    if what == "changed":
        path.mkdir()
        for file in scorer.bundle.path.iterdir():
            (path / file.name).write_bytes(file.read_bytes() + b"x")
    with _client(memory, service_settings(scorer).model_copy(update={"bundle": path})) as client:
        wait_until(lambda: client.get("/readyz").json()["status"] == "failed")
        assert str(path) in client.get("/readyz").json()["reason"]


def test_a_fault_of_ours_is_not_spelled_out(scorer: Scorer, memory: MemoryStore) -> None:
    """An exception that nobody foresaw is named in the log, by its kind and place, and nowhere by its text."""

    def fault(_bundle: Bundle, _settings: Settings) -> Scorer:
        raise ValueError("secret")

    with _client(memory, service_settings(scorer), fault) as client:
        wait_until(lambda: client.get("/readyz").json()["status"] == "failed")
        assert "secret" not in client.get("/readyz").text


def test_no_bundle_at_all_is_told(memory: MemoryStore) -> None:
    """The reason names the setting."""
    with _client(memory, service_settings()) as client:
        wait_until(lambda: "FORESCORE_BUNDLE" in client.get("/readyz").json()["reason"])


@pytest.mark.parametrize("url", ["nothing.parquet", "ftp://user:secret@host/db"])
def test_a_feature_source_that_cannot_be_is_told(scorer: Scorer, memory: MemoryStore, url: str) -> None:
    """A source that was asked for and is not there is a mistake of the set-up: not ready, and no secret is told."""
    with _client(memory, service_settings(scorer, features=url)) as client:
        wait_until(lambda: client.get("/readyz").json()["status"] == "failed")
        assert "FORESCORE_FEATURES__URL" in client.get("/readyz").json()["reason"]
        assert "secret" not in client.get("/readyz").text


def test_without_the_store_it_is_ready_and_degraded(scorer: Scorer, memory: MemoryStore) -> None:
    """An outage of what all instances share must not take all of them out; nor need it be there at the start."""
    memory.failure = StoreDown("gone")
    publish_later = memory.store
    with serving(scorer, memory) as client:
        assert client.get("/readyz").json()["status"] == "degraded"
        assert client.get("/healthz").status_code == 200
        memory.failure = None
        publish(publish_later, scorer, {"a": ROW})
        wait_until(lambda: client.get("/readyz").json() == {"status": "ready"})
        assert client.get("/score/a").status_code == 200
        memory.failure = StoreDown("gone again")
        wait_until(lambda: client.get("/readyz").json()["status"] == "degraded")
        assert client.get("/readyz").status_code == 200


def test_a_pointer_that_grows_old_is_degraded(scorer: Scorer, memory: MemoryStore) -> None:
    """A store that was reached long ago is not known to be there."""
    clock = FrozenClock()
    settings = service_settings(scorer, pointer_poll_seconds=1000)
    with serving(scorer, memory, settings, monotonic=clock) as client:
        assert client.get("/readyz").json() == {"status": "ready"}
        clock.advance(3001)
        assert client.get("/readyz").json()["status"] == "degraded"


def test_the_verbose_probe_tells_of_each_part(scorer: Scorer, memory: MemoryStore) -> None:
    """Model, store, pointer and features, each with its status and its milliseconds: what an operator asks first."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer, memory) as client:
        checks = client.get("/readyz?verbose").json()["checks"]

    assert checks["model"]["model_version"] == "1"
    assert checks["model"]["golden_digest"] == scorer.golden_digest
    assert (checks["store"]["reachable"], checks["store"]["breaker"]) == (True, "closed")
    assert (checks["pointer"]["snapshot"], checks["pointer"]["parity"]) == ("1-A", "exact")
    parts = [checks["model"], checks["store"], checks["pointer"], checks["features"]["store"]]
    assert [part["status"] for part in parts] == ["ok"] * 4
    assert all(0 <= part["ms"] < 500 for part in parts)


def test_a_part_that_fails_is_told_and_readiness_stays(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """The store and what lies in it fail, the rest is well: degraded, with 200, and not a word of what they said."""
    table = tmp_path / "features.parquet"
    pq.write_table(pa.table({"customer_id": ["x"], "visits": [1.0], "returns": [0.0], "basket": [2.0]}), table)
    with serving(scorer, memory, service_settings(scorer, features=f"store,{table}")) as client:
        memory.failure = StoreDown("secret-address")
        wait_until(lambda: client.get("/readyz").json()["status"] == "degraded")
        answer = client.get("/readyz?verbose")

    checks = answer.json()["checks"]
    assert (answer.status_code, checks["model"]["status"]) == (200, "ok")
    assert [checks[name]["status"] for name in ("store", "pointer")] == ["failing", "failing"]
    assert {name: found["status"] for name, found in checks["features"].items()} == {
        "store": "failing",
        "parquet": "ok",
    }
    assert "secret" not in answer.text


def test_parts_that_hang_cost_a_bounded_time(scorer: Scorer, memory: MemoryStore) -> None:
    """A store that does not answer and a pass that does not end are asked at once, and left after half a second."""
    gate = threading.Event()
    model = _Held(scorer, gate)
    memory.async_store.reader.ping = _hang  # type: ignore[method-assign]
    with serving(model, memory) as client, ThreadPoolExecutor(1) as pool:  # type: ignore[arg-type]
        running = pool.submit(client.post, "/score", json={"items": [{"features": ROW}]})
        try:
            assert model.began.wait(30)
            answer = client.get("/readyz?verbose")
        finally:
            gate.set()
        assert running.result(30).status_code == 200
        assert client.get("/readyz?verbose").json()["checks"]["model"]["status"] == "ok"

    checks = answer.json()["checks"]
    assert (answer.status_code, checks["model"]["status"], checks["store"]["status"]) == (200, "late", "late")
    assert 500 <= checks["store"]["ms"] < 5_000


def test_no_plain_probe_asks_anybody(scorer: Scorer, memory: MemoryStore) -> None:
    """What machines ask every second is answered from what is known: they wait for nothing that hangs."""
    memory.async_store.reader.ping = _raise  # type: ignore[method-assign]
    with serving(scorer, memory) as client:
        for path in ("/livez", "/readyz", "/healthz", "/metrics"):
            assert client.get(path).status_code == 200
        assert client.get("/readyz?verbose").json()["checks"]["store"]["status"] == "failing"


def test_probes_reveal_no_setting(scorer: Scorer, memory: MemoryStore) -> None:
    """They need no key, so they tell no address, path or secret."""
    url = "postgresql://reader:hunter2@db.internal/shop?table=t"
    settings = service_settings(scorer, features=f"store,{url}")
    with serving(scorer, memory, settings) as client:
        told = [client.get(path).text for path in ("/livez", "/readyz", "/readyz?verbose", "/healthz", "/metrics")]

    for word in ("hunter2", "db.internal", "reader", str(scorer.bundle.path)):
        assert word not in "".join(told)


def test_liveness_looks_at_nothing_else(scorer: Scorer, memory: MemoryStore) -> None:
    """It is the same with the store gone and the model not loaded."""
    memory.failure = StoreDown("gone")
    with _client(memory, service_settings()) as client:
        assert client.get("/livez").json() == {"status": "alive"}


class _Held:
    """A scorer whose passes wait at a gate."""

    def __init__(self, scorer: Scorer, gate: threading.Event) -> None:
        self.began = threading.Event()
        self._scorer = scorer
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    def score(self, encoded: Encoded) -> Any:
        if len(encoded):
            self.began.set()
            assert self._gate.wait(30)
        return self._scorer.score(encoded)


async def _hang() -> None:
    await asyncio.Event().wait()


async def _raise() -> None:
    raise AssertionError("nobody is to ask")
