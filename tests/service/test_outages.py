"""The store is a cache: slow, hung, empty, full or gone, and the service answers what it can, and says how."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from redis import Redis
from starlette.testclient import TestClient
from support.publish import bits, publish
from support.servers import ValkeyProcess, dead_port, hung_server, start_valkey, wait_until
from support.services import service_settings, serving
from support.wires import parrot, slow_proxy

from shared.layout import Keys, bucket_of
from shared.scorer import Scorer
from shared.settings import RedisSettings, Settings
from shared.store.connect import open_store

ROW = {"visits": 1, "returns": 0, "basket": 2}
DEADLINE_SECONDS = 1.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyProcess]:
    """A server of the test's own, which it may stop, pause and empty."""
    with start_valkey(tmp_path) as process:
        yield process


@pytest.fixture
def parquet(tmp_path: Path) -> str:
    """A source of features that does not lie in the store."""
    columns = {"visits": [0], "returns": [3], "basket": [1]}
    pq.write_table(pa.table({"customer_id": ["unseen"], **columns}), tmp_path / "features.parquet")
    return str(tmp_path / "features.parquet")


def _settings(scorer: Scorer, url: str, features: str, **redis: object) -> Settings:
    given = RedisSettings.model_validate({"url": SecretStr(url), "breaker_seconds": 0.2, **redis})
    deadline = int(DEADLINE_SECONDS * 1000)
    return service_settings(scorer, features=features, redis=given, deadline_ms=deadline)


def _publish(server: ValkeyProcess, scorer: Scorer, snapshot: str = "1-A") -> None:
    with open_store(_settings(scorer, server.url, "none"), "purchase") as store:
        publish(store, scorer, {"known": ROW}, snapshot=snapshot)


def _require_degraded_answers(client: TestClient) -> None:
    """A known entity gets 503 with Retry-After, an unseen one its score, inline features theirs; all in time."""
    for _ in range(8):  # before, while and after the breaker opens
        start = time.monotonic()
        known = client.get("/score/known")
        unseen = client.get("/score/unseen")
        bulk = client.post(
            "/score", json={"items": [{"entity_id": "known"}, {"entity_id": "unseen"}, {"features": ROW}]}
        )
        assert time.monotonic() - start < 3 * DEADLINE_SECONDS
        assert (known.status_code, known.json()["type"]) == (503, "urn:forescore:problem:score-unavailable")
        assert known.headers["retry-after"] == "2"
        assert (unseen.status_code, unseen.json()["source"]) == (200, "online")
        assert unseen.json()["scores"] == {"buys": 0.3100255}
        assert [one.get("source", one.get("error", {}).get("status")) for one in bulk.json()["results"]] == [
            503,
            "online",
            "online",
        ]


def _require_degraded_probe(client: TestClient) -> None:
    wait_until(lambda: client.get("/readyz").json()["status"] == "degraded")
    assert client.get("/readyz").status_code == 200
    assert client.get("/livez").status_code == 200


def _require_recovery(client: TestClient) -> None:
    wait_until(lambda: client.get("/score/known").status_code == 200)
    assert client.get("/score/known").json()["source"] == "cache"
    wait_until(lambda: client.get("/readyz").json() == {"status": "ready"})


def test_a_dead_port_from_the_start(scorer: Scorer, parquet: str) -> None:
    """Nothing listens where the store should be: the service starts, and scores whom it can."""
    with serving(scorer, settings=_settings(scorer, f"redis://127.0.0.1:{dead_port()}", parquet)) as client:
        _require_degraded_answers(client)
        _require_degraded_probe(client)


def test_a_hung_port_from_the_start(scorer: Scorer, parquet: str) -> None:
    """A store that takes connections and says nothing costs no more than the deadline."""
    with (
        hung_server() as port,
        serving(scorer, settings=_settings(scorer, f"redis://127.0.0.1:{port}", parquet)) as client,
    ):
        _require_degraded_answers(client)
        _require_degraded_probe(client)


def test_the_store_stops_and_comes_back(scorer: Scorer, server: ValkeyProcess, parquet: str) -> None:
    """Stopped under the running service, and started again with its data: no restart of the service is needed."""
    _publish(server, scorer)
    with serving(scorer, settings=_settings(scorer, server.url, parquet)) as client:
        assert client.get("/score/known").json()["source"] == "cache"
        server.kill()
        _require_degraded_answers(client)
        _require_degraded_probe(client)
        server.start()
        _publish(server, scorer)
        _require_recovery(client)


def test_the_store_hangs_and_wakes(scorer: Scorer, server: ValkeyProcess, parquet: str) -> None:
    """A paused server answers nothing and closes nothing: within the deadline all is said that can be."""
    _publish(server, scorer)
    with serving(scorer, settings=_settings(scorer, server.url, parquet)) as client:
        assert client.get("/score/known").json()["source"] == "cache"
        server.pause()
        _require_degraded_answers(client)
        _require_degraded_probe(client)
        server.resume()
        _require_recovery(client)


def test_the_store_comes_back_empty(scorer: Scorer, server: ValkeyProcess, parquet: str) -> None:
    """An empty store has forgotten everybody, and nobody is therefore unknown: 503 until the snapshot is back."""
    _publish(server, scorer)
    with serving(scorer, settings=_settings(scorer, server.url, parquet)) as client:
        assert client.get("/score/known").json()["source"] == "cache"
        server.restart()
        wait_until(lambda: "lost" in client.get("/readyz").json().get("reason", ""))
        _require_degraded_answers(client)
        _publish(server, scorer)
        _require_recovery(client)


def test_after_a_restart_of_the_store_promotions_are_seen(scorer: Scorer, server: ValkeyProcess, parquet: str) -> None:
    """Polling finds the pointer again whatever became of a connection; its age is a metric."""
    _publish(server, scorer)
    with serving(scorer, settings=_settings(scorer, server.url, parquet)) as client:
        for number in range(3):
            server.restart()
            _publish(server, scorer, snapshot=f"1-R{number}")
            wait_until(lambda number=number: client.get("/score/known").json().get("snapshot") == f"1-R{number}")  # type: ignore[misc]
        ages = [line for line in client.get("/metrics").text.splitlines() if line.startswith("forescore_pointer_age")]
        assert float(ages[0].split()[1]) < 5


@pytest.mark.parametrize(
    "reply",
    [
        b"-LOADING Valkey is loading the dataset in memory\r\n",
        b"-NOAUTH Authentication required.\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        b"-MISCONF Errors writing to disk\r\n",
        b"-CLUSTERDOWN The cluster is down\r\n",
        b"+OK\r\n",
        b"$5\r\nhello\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_whatever_the_store_says_instead_of_an_answer_degrades(scorer: Scorer, parquet: str, reply: bytes) -> None:
    """No error of the store, and no nonsense, becomes a 500 or a 404."""
    with (
        parrot(reply) as port,
        serving(scorer, settings=_settings(scorer, f"redis://127.0.0.1:{port}", parquet)) as client,
    ):
        _require_degraded_answers(client)
        _require_degraded_probe(client)


def test_a_full_store_still_answers(scorer: Scorer, server: ValkeyProcess) -> None:
    """What is there is read; what cannot be written costs 503 on PUT, and nothing on an answer."""
    _publish(server, scorer)
    with serving(scorer, settings=_settings(scorer, server.url, "store")) as client:
        with Redis.from_url(server.url) as redis:
            redis.config_set("maxmemory", 1)
        assert client.get("/score/known").json()["source"] == "cache"
        answer = client.put("/features/new", json={"features": ROW})
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:forescore:problem:store-unavailable")
        assert client.get("/score/known").status_code == 200


def test_a_replica_still_answers(scorer: Scorer, server: ValkeyProcess) -> None:
    """A store that takes no writes any more, as after a failover, is read all the same."""
    _publish(server, scorer)
    with serving(scorer, settings=_settings(scorer, server.url, "store")) as client:
        with Redis.from_url(server.url) as redis:
            redis.replicaof("127.0.0.1", dead_port())
        assert client.get("/score/known").json()["source"] == "cache"
        assert client.put("/features/new", json={"features": ROW}).status_code == 503
        with Redis.from_url(server.url) as redis:
            redis.replicaof("NO", "ONE")
        wait_until(lambda: client.put("/features/new", json={"features": ROW}).status_code == 204)
        assert client.get("/score/new").json()["source"] == "online"


@pytest.mark.parametrize("damage", ["value", "type"])
def test_damaged_keys_cost_their_entities(scorer: Scorer, server: ValkeyProcess, parquet: str, damage: str) -> None:
    """Bytes and types that are not ours: 503 for that entity, and no exception."""
    _publish(server, scorer)
    key = Keys("fs", "purchase").bucket("1-A", bucket_of("known", 1))
    with Redis.from_url(server.url) as redis:
        if damage == "value":
            redis.hset(key, "known", b"\x01\x00garbage")
        else:
            redis.delete(key)
            redis.set(key, b"text")
    with serving(scorer, settings=_settings(scorer, server.url, parquet)) as client:
        assert client.get("/score/known").status_code == 503
        assert client.get("/readyz").json()["status"] == "ready"


def test_an_evicted_pointer_does_not_stop_the_service(scorer: Scorer, server: ValkeyProcess, parquet: str) -> None:
    """Without its control key the store does not say what is active: the last known snapshot serves on."""
    _publish(server, scorer)
    with serving(scorer, settings=_settings(scorer, server.url, parquet)) as client:
        with Redis.from_url(server.url) as redis:
            redis.delete(Keys("fs", "purchase").active())
        _require_degraded_probe(client)
        assert client.get("/score/known").json()["snapshot"] == "1-A"


def test_no_answer_is_ever_that_of_another_entity(scorer: Scorer, server: ValkeyProcess) -> None:
    """Requests given up in the middle of a look-up leave nothing behind that a later one could take for its own."""
    rows = {f"C{number}": {"visits": number / 16, "returns": 0, "basket": 2} for number in range(64)}
    with open_store(_settings(scorer, server.url, "none"), "purchase") as store:
        publish(store, scorer, rows)
    dice = random.Random(5)  # noqa: S311 - for delays
    delay = 0.0

    with slow_proxy(server.port, lambda: delay * dice.random()) as port:
        settings = _settings(scorer, f"redis://127.0.0.1:{port}", "none", read_timeout_ms=60, breaker_failures=10_000)
        short = settings.model_copy(update={"service": settings.service.model_copy(update={"deadline_ms": 40})})
        with serving(scorer, settings=settings) as client:
            expected = {entity: bits(client.get(f"/score/{entity}").json()["scores"]["buys"]) for entity in rows}
            assert len(set(expected.values())) == len(rows)
        with serving(scorer, settings=short) as client, ThreadPoolExecutor(8) as pool:
            delay = 0.08
            answers = list(pool.map(lambda entity: (entity, client.get(f"/score/{entity}")), [*rows] * 8))
            delay = 0.0
            answers += pool.map(lambda entity: (entity, client.get(f"/score/{entity}")), [*rows] * 2)

    assert {answer.status_code for _, answer in answers} <= {200, 503, 504}
    assert {200, 504} <= {answer.status_code for _, answer in answers}
    for entity, answer in answers:
        if answer.status_code == 200:
            assert (answer.json()["entity_id"], bits(answer.json()["scores"]["buys"])) == (entity, expected[entity])
