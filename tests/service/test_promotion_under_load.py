"""A real process under load while snapshots are flipped: no error, and never the scores of one version as another's."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.publish import publish
from support.servers import wait_until
from support.services import ready_process, service_settings
from support.snapshots import promote, rollback

from shared.scorer import Scorer
from shared.settings import RedisSettings
from shared.store.connect import open_store
from shared.store.interfaces import Store

IDS = [f"C{number}" for number in range(100)]
ROW = {"visits": 1, "returns": 0, "basket": 2}
SCORES = {"1": 0.8581489, "2": 0.37754068}
POLL_SECONDS = 0.1
FLIPS = 20


@pytest.fixture
def store(scorer: Scorer, scorer2: Scorer, redis_settings: RedisSettings) -> Iterator[Store]:
    """A store with two whole snapshots, whose scores tell their versions; the first is active."""
    with open_store(service_settings(redis=redis_settings), "purchase") as opened:
        publish(opened, scorer, dict.fromkeys(IDS, ROW))
        publish(opened, scorer2, dict.fromkeys(IDS, ROW), active=False)
        yield opened


@pytest.fixture
def client(store: Store, scorer2: Scorer, redis_settings: RedisSettings, tmp_path: Path) -> Iterator[httpx2.Client]:
    """A process that is ready. It has bundle 2, so that only version 2 is scored online."""
    assert redis_settings.url is not None
    environment = {
        "FORESCORE_REDIS__URL": redis_settings.url.get_secret_value(),
        "FORESCORE_REDIS__NAMESPACE": redis_settings.namespace,
        "FORESCORE_REDIS__READ_TIMEOUT_MS": "5000",
        "FORESCORE_SERVICE__DEADLINE_MS": "30000",
        "FORESCORE_SERVICE__POINTER_POLL_SECONDS": str(POLL_SECONDS),
    }
    with ready_process(tmp_path, str(scorer2.bundle.path), **environment) as ready:
        yield ready


def test_twenty_flips_under_load(store: Store, client: httpx2.Client) -> None:
    """Every answer of a client in a loop is whole: its scores, its version and its snapshot belong together."""
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        loops: list[Future[list[str]]] = [pool.submit(_ask, client, question, stop) for question in (_one, _many)]
        for number in range(FLIPS):
            snapshot = ("2-A", "1-A")[number % 2]
            promote(store, snapshot)
            wait_until(lambda snapshot=snapshot: client.get("/score/C0").json()["snapshot"] == snapshot)  # type: ignore[misc]
        stop.set()
        versions = [version for loop in loops for version in loop.result()]

    assert len(versions) > 2 * FLIPS
    assert set(versions) == {"1", "2"}


def test_a_rollback_is_seen_at_the_next_poll(store: Store, client: httpx2.Client) -> None:
    """It is the same flip, backwards: no score is computed or written for it."""
    promote(store, "2-A")
    wait_until(lambda: client.get("/score/C0").json()["snapshot"] == "2-A")
    start = time.monotonic()
    rollback(store)
    wait_until(lambda: client.get("/score/C0").json()["snapshot"] == "1-A")

    assert time.monotonic() - start < POLL_SECONDS + 1


def _ask(client: httpx2.Client, question: Callable[[httpx2.Client], str], stop: threading.Event) -> list[str]:
    versions = []
    while not stop.is_set():
        versions.append(question(client))
    return versions


def _one(client: httpx2.Client) -> str:
    answer = client.get("/score/C7")
    assert answer.status_code == 200, answer.text
    return _consistent(answer.json())


def _many(client: httpx2.Client) -> str:
    answer = client.post("/score", json={"items": [{"entity_id": entity} for entity in IDS]})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    (version,) = {_consistent(one) for one in body["results"]}
    assert body["snapshot"] == f"{version}-A"
    return version


def _consistent(body: dict[str, Any]) -> str:
    version: str = body["model_version"]
    assert body["source"] == "cache"
    assert body["snapshot"] == f"{version}-A"
    assert body["scores"] == {"buys": SCORES[version]}
    return version
