import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.publish import publish
from support.servers import wait_until
from support.services import opener, service_settings, serving

from service.app import create_app
from service.runtime import Dependencies
from shared.bundle import Bundle
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
    """Model, store, pointer and features: what an operator asks first."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer, memory) as client:
        checks = client.get("/readyz?verbose").json()["checks"]

    assert checks["model"]["model_version"] == "1"
    assert checks["model"]["golden_digest"] == scorer.golden_digest
    assert checks["store"] == {"reachable": True, "breaker": "closed"}
    assert (checks["pointer"]["snapshot"], checks["pointer"]["parity"]) == ("1-A", "exact")
    assert checks["features"] == {"store": "ok"}


def test_liveness_looks_at_nothing_else(scorer: Scorer, memory: MemoryStore) -> None:
    """It is the same with the store gone and the model not loaded."""
    memory.failure = StoreDown("gone")
    with _client(memory, service_settings()) as client:
        assert client.get("/livez").json() == {"status": "alive"}
