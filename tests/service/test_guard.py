"""Who is let in and who is not: with the fast lane and without it, the same answers to the byte."""

import asyncio
import io
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient
from support.publish import publish
from support.servers import dead_port, hung_server, wait_until
from support.services import service_settings, serving

from shared.errors import SettingsError
from shared.scorer import Scorer
from shared.settings import KeySettings, LimitSettings, RedisSettings, Settings
from shared.snapshot import Absent, Lost, SnapshotMeta
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}
SECRETS = {"read": "fsk_reader", "write": "fsk_writer", "admin": "fsk_admin"}
LINES = ";".join(f"{scope}er {scope} {sha256(text.encode()).hexdigest()}" for scope, text in SECRETS.items())
KEYS = KeySettings(lines=SecretStr(LINES))
OF_A_REQUEST = {"x-request-id", "server-timing", "date"}
Told = tuple[int, bytes, list[tuple[bytes, bytes]]]


@contextmanager
def guarded(
    scorer: Scorer,
    memory: MemoryStore,
    *,
    keys: KeySettings = KEYS,
    clock: FrozenClock | None = None,
    redis: RedisSettings | None = None,
    **limits: Any,
) -> Iterator[tuple[TestClient, TestClient]]:
    """The same guarded service twice: with the fast lane, and without."""
    with ExitStack() as stack:
        clients = []
        for fast in (True, False):
            settings = service_settings(scorer, fast_lane=fast, redis=redis, write_back=False).model_copy(
                update={"keys": keys, "limits": LimitSettings(**limits)}
            )
            clients.append(stack.enter_context(serving(scorer, memory, settings, monotonic=clock, wall=clock)))
        yield clients[0], clients[1]


def told(client: TestClient, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any) -> Told:
    answer = client.request(method, path, headers=dict(headers or {}), **more)
    kept = [(name, value) for name, value in answer.headers.raw if name.decode().lower() not in OF_A_REQUEST]
    return answer.status_code, answer.content.replace(answer.headers["x-request-id"].encode(), b"ID"), kept


def both(
    clients: tuple[TestClient, TestClient], method: str, path: str, headers: Mapping[str, str], **more: Any
) -> int:
    first, second = (told(client, method, path, headers, **more) for client in clients)
    assert first == second, (method, path, headers)
    return first[0]


def bearer(scope: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[scope]}"}


NEEDS = [
    ("GET", "/score/a", "read"),
    ("GET", "/score/nobody", "read"),
    ("GET", "/%73core/a", "read"),
    ("POST", "/score", "read"),
    ("GET", "/model", "read"),
    ("GET", "/snapshots", "read"),
    ("GET", "/docs", "read"),
    ("GET", "/docs/files/favicon.png", "read"),
    ("GET", "/openapi.json", "read"),
    ("GET", "/", "read"),
    ("PUT", "/features/x", "write"),
    ("DELETE", "/features/x", "write"),
    ("GET", "/metrics", "admin"),
    ("GET", "/readyz?verbose", "admin"),
    ("GET", "/readyz?%76erbose=1", "admin"),
    ("GET", "/nothing", "admin"),
    ("GET", "/%6Detrics", "admin"),
]


@pytest.fixture(scope="module")
def pair(scorer: Scorer) -> Iterator[tuple[TestClient, TestClient]]:
    """A service with the three keys, twice."""
    memory = MemoryStore("purchase")
    publish(memory.store, scorer, {"a": ROW})
    with guarded(scorer, memory, clock=FrozenClock(1_700_000_000.0)) as clients:
        yield clients


@pytest.mark.parametrize(("method", "path", "scope"), NEEDS)
def test_each_path_needs_its_scope(pair: tuple[TestClient, TestClient], method: str, path: str, scope: str) -> None:
    """Without a key 401, with a key of another scope 403, with its own neither; on both ways the same."""
    body = {"json": {"items": [{"entity_id": "a"}]}} if method == "POST" else {}
    assert both(pair, method, path, {}, **body) == 401
    for other in SECRETS:
        if other != scope:
            assert both(pair, method, path, bearer(other), **body) == 403
    assert pair[0].request(method, path, headers=bearer(scope), **body).status_code not in {401, 403}


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/readyz?x=1"])
def test_probes_need_no_key_and_reveal_nothing(pair: tuple[TestClient, TestClient], path: str) -> None:
    """A probe without a key is answered with its status word alone."""
    answer = pair[0].get(path)
    assert answer.status_code == 200
    assert list(answer.json()) == ["status"]


WRONG: list[dict[str, str]] = [
    {},
    {"authorization": ""},
    {"authorization": "Bearer"},
    {"authorization": "Bearer "},
    {"authorization": "Bearer fsk_wrong"},
    {"authorization": "Bearer fsk_reader x"},
    {"authorization": "Basic ZnNrX3JlYWRlcjo="},
    {"authorization": sha256(b"fsk_reader").hexdigest()},
    {"authorization": "Bearer " + sha256(b"fsk_reader").hexdigest()},
    {"x-api-key": ""},
    {"x-api-key": "fsk_reade"},
    {"x-api-key": "k" * 8000},
    {"cookie": "key=fsk_reader"},
]


@pytest.mark.parametrize("headers", WRONG)
def test_missing_and_wrong_look_alike(
    pair: tuple[TestClient, TestClient], headers: dict[str, str], log: io.StringIO
) -> None:
    """One answer for all of them, with the challenge; neither the wrong nor the right key is in the log."""
    answers = [told(client, "GET", "/score/a", one) for client in pair for one in ({}, headers)]
    assert all(answer == answers[0] for answer in answers)
    status, body, sent = answers[0]
    assert status == 401
    assert orjson.loads(body)["type"] == "urn:forescore:problem:unauthorized"
    assert (b"www-authenticate", b'Bearer realm="forescore"') in sent
    for text in (*headers.values(), *SECRETS.values()):
        assert not text.strip() or text.split()[-1] not in log.getvalue()


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "bearer fsk_reader"},
        {"authorization": "BEARER  fsk_reader "},
        {"x-api-key": " fsk_reader "},
        {"authorization": "Basic eA==", "x-api-key": "fsk_reader"},
    ],
)
def test_a_key_comes_by_either_header(pair: tuple[TestClient, TestClient], headers: dict[str, str]) -> None:
    """As a bearer token, whatever the case of the word, or as X-API-Key."""
    assert both(pair, "GET", "/score/a", headers) == 200


def test_the_name_of_the_key_is_in_the_line_and_the_key_is_not(
    scorer: Scorer, memory: MemoryStore, log: io.StringIO
) -> None:
    """Hits, misses, lists and refusals by scope say whose they are; on both ways in the same words."""
    publish(memory.store, scorer, {"a": ROW})
    with guarded(scorer, memory) as clients:
        for client in clients:
            client.get("/score/a", headers=bearer("read"))
            client.get("/score/nobody", headers=bearer("read"))
            client.post("/score", json={"items": []}, headers=bearer("read"))
            client.put("/features/x", headers=bearer("read"))
    lines = [orjson.loads(line) for line in log.getvalue().splitlines()]
    told_of = [line["key"] for line in lines if line["event"] == "request" and line["level"] == "info"]
    assert told_of == ["reader"] * 8
    assert "fsk_" not in log.getvalue()


def test_rows_are_counted_by_the_name_of_the_key(scorer: Scorer, memory: MemoryStore) -> None:
    """A hit is one row, a list as many as it has items; what is refused is none, and has a reason."""
    publish(memory.store, scorer, {"a": ROW})
    with guarded(scorer, memory) as (client, _):
        client.get("/score/a", headers=bearer("read"))
        client.post("/score", json={"items": [{"entity_id": "a"}] * 5}, headers=bearer("read"))
        client.get("/score/a", headers=bearer("write"))
        client.get("/score/a")

        def counted() -> str:
            return client.get("/metrics", headers=bearer("admin")).text

        wait_until(lambda: 'forescore_key_rows_total{key="reader"} 6.0' in counted())
        assert 'forescore_refused_requests_total{reason="scope"} 1.0' in counted()
        assert 'forescore_refused_requests_total{reason="key"} 1.0' in counted()


def test_metrics_may_be_left_open(scorer: Scorer, memory: MemoryStore) -> None:
    """By a setting, and nothing else is opened by it."""
    keys = KeySettings(lines=SecretStr(LINES), open_metrics=True)
    with guarded(scorer, memory, keys=keys) as (client, _):
        assert client.get("/metrics").status_code == 200
        assert client.get("/readyz?verbose").status_code == 401


def test_a_new_file_of_keys_holds_without_a_restart(scorer: Scorer, memory: MemoryStore, tmp_path: Path) -> None:
    """Rotation: the new key holds beside the old one, then the old one is gone."""
    publish(memory.store, scorer, {"a": ROW})
    old, new = (f"app read {sha256(text).hexdigest()}\n" for text in (b"fsk_old", b"fsk_new"))
    file = tmp_path / "keys"
    file.write_text(old, encoding="utf-8")
    with guarded(scorer, memory, keys=KeySettings(file=file, poll_seconds=0.01)) as (client, _):

        def status(text: str) -> int:
            return client.get("/score/a", headers={"x-api-key": text}).status_code

        assert (status("fsk_old"), status("fsk_new")) == (200, 401)
        file.write_text(old + new, encoding="utf-8")
        wait_until(lambda: status("fsk_new") == 200)
        assert status("fsk_old") == 200
        file.write_text(new, encoding="utf-8")
        wait_until(lambda: status("fsk_old") == 401)
        assert status("fsk_new") == 200


def test_a_file_that_is_broken_at_the_start_lets_nothing_start(scorer: Scorer, memory: MemoryStore) -> None:
    """There are no keys before it that could hold."""
    with (
        pytest.raises(SettingsError, match="file of keys"),
        guarded(scorer, memory, keys=KeySettings(file=Path("/nowhere/keys"))),
    ):
        pass


def test_a_rate_is_refused_in_the_words_of_http(scorer: Scorer, memory: MemoryStore) -> None:
    """429 with Retry-After, RateLimit and RateLimit-Policy; the same bytes on both ways; room again after that time."""
    publish(memory.store, scorer, {"a": ROW})
    clock = FrozenClock(1_700_000_000.0)
    with guarded(scorer, memory, clock=clock, rate_per_key="3/minute", rate="100/minute") as clients:
        ask = bearer("read")
        assert [both(clients, "GET", "/score/a", ask) for _ in range(4)] == [200, 200, 200, 429]
        answer = clients[0].get("/score/a", headers=ask)
        assert answer.headers["ratelimit-policy"] == '"key";q=3;w=60, "all";q=100;w=60'
        later = int(answer.headers["retry-after"])
        assert answer.headers["ratelimit"] == f'"key";r=0;t={later}'
        assert both(clients, "GET", "/score/nobody", ask) == 429
        assert both(clients, "PUT", "/features/x", bearer("write"), json={"features": ROW}) == 204
        assert both(clients, "GET", "/readyz", {}) == 200
        clock.advance(later)
        assert both(clients, "GET", "/score/a", ask) == 200


def test_a_list_counts_its_rows(scorer: Scorer, memory: MemoryStore) -> None:
    """Ten rows allowed: lists of six and of four pass, one row more does not; eleven never do."""
    publish(memory.store, scorer, {"a": ROW})
    with guarded(scorer, memory, keys=KeySettings(), clock=FrozenClock(1_700_000_000.0), rate="10/minute") as clients:

        def ask(rows: int) -> int:
            return both(clients, "POST", "/score", {}, json={"items": [{"entity_id": "a"}] * rows})

        assert [ask(rows) for rows in (6, 4, 1)] == [200, 200, 429]
        refused = clients[0].post("/score", json={"items": [{"entity_id": "a"}] * 11})
        assert refused.status_code == 429


def test_who_has_no_key_takes_nothing_from_who_has(scorer: Scorer, memory: MemoryStore) -> None:
    """A flood of wrong keys leaves the rate of all others as it was."""
    publish(memory.store, scorer, {"a": ROW})
    with guarded(scorer, memory, clock=FrozenClock(1_700_000_000.0), rate="2/minute") as clients:
        for _ in range(20):
            assert both(clients, "GET", "/score/a", {"x-api-key": "fsk_wrong"}) == 401
        assert both(clients, "GET", "/score/a", bearer("read")) == 200


def test_a_store_that_does_not_count_refuses_nobody(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """Shared rates fail open: everybody is answered, a metric counts them, and the log says it once in a while."""
    publish(memory.store, scorer, {"a": ROW})
    gone = RedisSettings(url=SecretStr(f"redis://127.0.0.1:{dead_port()}"))
    clock = FrozenClock(1_700_000_000.0)
    with guarded(
        scorer, memory, keys=KeySettings(), clock=clock, redis=gone, rate="1/minute", storage="store"
    ) as clients:
        assert [both(clients, "GET", "/score/a", {}) for _ in range(5)] == [200] * 5
        assert "forescore_rates_unknown_total 5.0" in clients[0].get("/metrics").text
    assert log.getvalue().count("rates unknown") == 2  # once by each of the two services


def test_a_store_that_hangs_refuses_nobody_either(scorer: Scorer, memory: MemoryStore) -> None:
    """One that takes connections and says nothing costs a request one timeout at most, until it is not asked."""
    publish(memory.store, scorer, {"a": ROW})
    with hung_server() as port:
        hung = RedisSettings(
            url=SecretStr(f"redis://127.0.0.1:{port}"), read_timeout_ms=100, breaker_failures=3, breaker_seconds=60
        )
        settings = service_settings(scorer, redis=hung, write_back=False, deadline_ms=2000).model_copy(
            update={"limits": LimitSettings(rate="1/minute", storage="store")}
        )
        with serving(scorer, memory, settings) as client:
            for _ in range(6):
                start = time.monotonic()
                assert client.get("/score/a").status_code == 200
                assert client.post("/score", json={"items": [{"entity_id": "a"}] * 2}).status_code == 200
                assert time.monotonic() - start < 2 * 2
            assert "forescore_rates_unknown_total 18.0" in client.get("/metrics").text


@pytest.mark.parametrize("lane", ["fast", "framework"])
def test_rows_in_work_are_bounded_and_given_back(scorer: Scorer, memory: MemoryStore, lane: str) -> None:
    """With one in work and room for two, a list of two is told to come later; once it is answered, there is room."""
    publish(memory.store, scorer, {"a": ROW})
    settings = service_settings(scorer, fast_lane=lane == "fast").model_copy(update={"limits": LimitSettings(rows=2)})
    with serving(scorer, memory, settings) as client:
        gate = Gate(memory, client)
        gate.shut()
        first = gate.ask("/score/a")
        wait_until(lambda: gate.waiting == 1)
        items = {"items": [{"features": ROW}, {"features": ROW}]}
        refused = client.post("/score", json=items)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "FORESCORE_LIMITS__ROWS" in refused.json()["detail"]
        gate.open()
        assert first() == 200
        assert client.post("/score", json=items).status_code == 200


class Gate:
    """Holds look-ups back, and asks from another thread meanwhile."""

    def __init__(self, memory: MemoryStore, client: TestClient) -> None:
        self._client = client
        self._reader = memory.async_store.reader
        self._opened: asyncio.Event | None = None
        self.waiting = 0

    def shut(self) -> None:
        peek, lookup = self._reader.peek, self._reader.lookup

        async def peeked(meta: SnapshotMeta, entity_id: bytes) -> bytes | Absent | Lost:
            await self._wait()
            return await peek(meta, entity_id)

        async def looked_up(meta: SnapshotMeta, ids: Any) -> Any:
            await self._wait()
            return await lookup(meta, ids)

        self._reader.peek, self._reader.lookup = peeked, looked_up  # type: ignore[method-assign]

    async def _wait(self) -> None:
        self._opened = self._opened or asyncio.Event()
        self.waiting += 1
        await self._opened.wait()

    def open(self) -> None:
        portal = self._client.portal
        assert portal is not None
        assert self._opened is not None
        portal.call(self._opened.set)

    def ask(self, path: str) -> Any:
        found: list[int] = []
        thread = Thread(target=lambda: found.append(self._client.get(path).status_code))
        thread.start()

        def joined() -> int:
            thread.join(timeout=20)
            return found[0]

        return joined


def test_nothing_guards_where_nothing_is_asked_for(scorer: Scorer, memory: MemoryStore) -> None:
    """Without keys and limits there is no guard in a request's way."""
    with serving(scorer, memory) as client:
        assert client.app.guard is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("rate", ["5", "5/fortnight", "0/second", "5/second;", "-1/second"])
def test_a_rate_that_cannot_be_is_a_mistake(rate: str) -> None:
    """It is found when the settings are read."""
    with pytest.raises(ValueError, match="rate"):
        Settings(limits=LimitSettings(rate=rate))
