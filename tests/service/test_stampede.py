"""Many callers at once, over HTTP: one computation, each his own answer, and nobody harmed by another's end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import numpy as np
import pytest
from starlette.testclient import TestClient
from support.polling import eventually
from support.proxy import proxy_to
from support.publish import publish
from support.servers import ValkeyProcess, wait_until
from support.services import OpenStore, opener, service_settings, serving
from support.stores import settings_for

from service.app import create_app
from service.runtime import Dependencies
from shared.encode import Encoded
from shared.payload import payload_of
from shared.scorer import Scorer
from shared.settings import Settings
from shared.snapshot import SnapshotMeta
from shared.store.connect import open_async_store, open_store
from shared.store.interfaces import OnlineScore
from shared.testing.store import MemoryStore

A = {"visits": 1, "returns": 0, "basket": 2}
B = {"visits": 0, "returns": 3, "basket": 1}
C = {"visits": 2, "returns": 1, "basket": 0}
BAD = {"visits": 1, "returns": 0}


class Gated:
    """A scorer whose passes can be held up and made to fail, and are counted."""

    def __init__(self, scorer: Scorer) -> None:
        self.passes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self._scorer = scorer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    def score(self, encoded: Encoded) -> np.ndarray:
        if len(encoded):
            self.passes.append(len(encoded))
            assert self.gate.wait(30)
            if self.fails:
                return np.empty((len(encoded) + 1, 1), np.float32)
        return self._scorer.score(encoded)


@contextmanager
def held(model: Gated) -> Iterator[None]:
    model.gate.clear()
    try:
        yield
    finally:
        model.gate.set()


def _metric(client: TestClient, line: str) -> float:
    found = [text for text in client.get("/metrics").text.splitlines() if text.startswith(f"{line} ")]
    return float(found[0].split()[-1]) if found else 0.0


def _count_reads(memory: MemoryStore) -> list[list[str]]:
    asked: list[list[str]] = []
    read = memory.async_store.features.read

    async def counted(ids: list[str]) -> list[bytes | None]:
        asked.append(list(ids))
        return await read(ids)

    memory.async_store.features.read = counted  # type: ignore[method-assign,assignment]
    return asked


@asynccontextmanager
async def calling(
    scorer: Gated, store: MemoryStore | OpenStore, settings: Settings
) -> AsyncIterator[httpx2.AsyncClient]:
    """The service in this event loop, so that callers can go away in the middle of anything."""
    open_store = opener(store) if isinstance(store, MemoryStore) else store
    dependencies = Dependencies(open_scorer=lambda _bundle, _settings: scorer, open_store=open_store)  # type: ignore[arg-type,return-value]
    app = create_app(settings, dependencies=dependencies)
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        transport = httpx2.ASGITransport(app=with_state)
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            await eventually(lambda: _is(client, "/readyz", lambda answer: answer.status_code == 200))
            yield client


async def _is(client: httpx2.AsyncClient, path: str, condition: Callable[[httpx2.Response], bool]) -> bool:
    return condition(await client.get(path))


def test_separate_calls_and_a_bad_one_share_a_pass(scorer: Scorer, memory: MemoryStore) -> None:
    """a, b and c come while a pass runs, and a bad one: 0.8581, 0.31 and 0.7311, and a 422 for the bad one alone."""
    model = Gated(scorer)
    with serving(model, memory) as client, ThreadPoolExecutor(5) as pool:  # type: ignore[arg-type]
        for name, row in (("a", A), ("b", B), ("c", C), ("first", A)):
            assert client.put(f"/features/{name}", json={"features": row}).status_code == 204
        with held(model):
            first = pool.submit(client.get, "/score/first")
            wait_until(lambda: model.passes == [1])
            calls = [pool.submit(client.get, f"/score/{name}") for name in "abc"]
            bad = pool.submit(client.post, "/score", json={"items": [{"features": BAD}]})
            assert bad.result(30).json()["results"][0]["error"]["status"] == 422
            wait_until(lambda: _metric(client, "forescore_queue_rows") == 3)
        found = [round(call.result(30).json()["scores"]["buys"], 4) for call in calls]
        first.result(30)

    assert found == [0.8581, 0.31, 0.7311]
    assert model.passes == [1, 3]


@pytest.mark.parametrize("door", ["get", "post", "both"])
def test_a_hundred_who_miss_the_same_entity(scorer: Scorer, memory: MemoryStore, door: str) -> None:
    """One question to the sources and one forward pass, by whichever door they come."""
    model = Gated(scorer)
    asked = _count_reads(memory)

    async def story() -> None:
        publish(memory.store, scorer, {"known": A})
        async with calling(model, memory, service_settings(scorer)) as client:
            await client.put("/features/new", json={"features": B})
            asked.clear()
            with held(model):
                calls = [asyncio.create_task(_ask(client, door, number)) for number in range(100)]
                await eventually(lambda: bool(model.passes))
                for _ in range(50):
                    await client.get("/livez")  # every caller has come to his wait meanwhile
            found = await asyncio.gather(*calls)
            assert "\nforescore_flights_joined_total 99.0\n" in (await client.get("/metrics")).text
        assert {round(one["scores"]["buys"], 4) for one in found} == {0.31}
        assert {one["entity_id"] for one in found} == {"new"}

    asyncio.run(story())
    assert model.passes == [1]
    assert asked == [["new"]]


def test_who_looked_before_the_score_was_in_the_store(scorer: Scorer, valkey: ValkeyProcess, namespace: str) -> None:
    """His look-up says absent and comes back when the computation is over: he gets its result, not one of his own."""
    model = Gated(scorer)

    async def story() -> tuple[httpx2.Response, httpx2.Response]:
        async with proxy_to(valkey.port) as proxy:
            redis = settings_for(f"redis://127.0.0.1:{proxy.port}", namespace).redis
            settings = service_settings(scorer, redis=redis, pointer_poll_seconds=3600)
            async with calling(model, open_async_store, settings) as client:
                with held(model):
                    first = asyncio.create_task(client.get("/score/new"))
                    await eventually(lambda: bool(model.passes))
                    looked = proxy.sent.count(b"HMGET")
                    proxy.gate.clear()
                    second = asyncio.create_task(client.get("/score/new"))
                    await proxy.until_sent(b"HMGET", looked + 1)
                answer = await first
                await proxy.until_sent(b"EVAL", 1)
                proxy.gate.set()
                return answer, await second

    with open_store(settings_for(valkey.url, namespace), scorer.bundle.name) as store:
        publish(store, scorer, {"known": A})
        store.features.write_many([("new", payload_of(B))], 60)
    answers = asyncio.run(story())
    assert model.passes == [1]
    assert [answer.json()["scores"] for answer in answers] == [{"buys": 0.3100255}] * 2
    assert [answer.headers["cache-status"] for answer in answers] == [
        "forescore; fwd=miss; stored",
        "forescore; fwd=miss; stored; collapsed",
    ]


def test_misses_of_one_turn_share_all_that_they_cost(scorer: Scorer, memory: MemoryStore) -> None:
    """Twenty entities at once: one question to the source, one pass, one write; each caller his own answer."""
    model = Gated(scorer)
    asked = _count_reads(memory)
    written = _slow_writes(memory)[1]
    names = [f"new{number}" for number in range(20)]

    async def story() -> None:
        publish(memory.store, scorer, {"known": A})
        async with calling(model, memory, service_settings(scorer)) as client:
            for name in names[:-1]:
                await client.put(f"/features/{name}", json={"features": B})
            asked.clear()
            answers = await asyncio.gather(*(client.get(f"/score/{name}") for name in names))
        assert [answer.json().get("entity_id") for answer in answers] == [*names[:-1], None]
        assert answers[-1].status_code == 404
        assert {answer.json()["scores"]["buys"] for answer in answers[:-1]} == {0.3100255}

    asyncio.run(story())
    assert asked == [names]
    assert model.passes == [19]
    assert written == [names[:-1]]


def test_new_features_come_while_a_score_of_the_old_is_being_written(scorer: Scorer, memory: MemoryStore) -> None:
    """After PUT has answered, the snapshot has the new features' score."""
    gate, written = _slow_writes(memory)

    async def story() -> None:
        publish(memory.store, scorer, {"known": A})
        async with calling(Gated(scorer), memory, service_settings(scorer)) as client:
            await client.put("/features/new", json={"features": B})
            gate.clear()
            assert (await client.get("/score/new")).json()["scores"] == {"buys": 0.3100255}
            await eventually(lambda: written == [["new"]])
            put = asyncio.create_task(client.put("/features/new", json={"features": A}))
            await client.get("/livez")
            gate.set()
            assert (await put).status_code == 204
            answer = (await client.get("/score/new")).json()
        assert (answer["source"], answer["scores"]) == ("cache", {"buys": 0.8581489})

    asyncio.run(story())


def _slow_writes(memory: MemoryStore) -> tuple[asyncio.Event, list[list[str]]]:
    """A gate before each write of online scores, and what was to be written."""
    gate, begun = asyncio.Event(), list[list[str]]()
    gate.set()
    write = memory.async_store.online.write_back

    async def slow(meta: SnapshotMeta, scores: Sequence[OnlineScore]) -> list[bool]:
        begun.append([one.entity_id for one in scores])
        await gate.wait()
        return await write(meta, scores)

    memory.async_store.online.write_back = slow  # type: ignore[method-assign]
    return gate, begun


async def _ask(client: httpx2.AsyncClient, door: str, number: int) -> dict[str, Any]:
    if door == "get" or (door == "both" and number % 2):
        answer = await client.get("/score/new")
        assert answer.status_code == 200, answer.text
        one: dict[str, Any] = answer.json()
        return one
    answer = await client.post("/score", json={"items": [{"entity_id": "known"}, {"entity_id": "new"}]})
    found: dict[str, Any] = answer.json()["results"][1]
    return found


def test_the_first_caller_disconnects(scorer: Scorer, memory: MemoryStore) -> None:
    """The work goes on for those who joined him, and is kept."""
    model = Gated(scorer)

    async def story() -> None:
        publish(memory.store, scorer, {"known": A})
        async with calling(model, memory, service_settings(scorer)) as client:
            await client.put("/features/new", json={"features": B})
            with held(model):
                first = asyncio.create_task(client.get("/score/new"))
                await eventually(lambda: bool(model.passes))
                others = [asyncio.create_task(client.get("/score/new")) for _ in range(3)]
                await client.get("/livez")
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
            for answer in await asyncio.gather(*others):
                assert (answer.status_code, answer.json()["scores"]) == (200, {"buys": 0.3100255})
                assert "collapsed" in answer.headers["cache-status"]
        assert first.cancelled()

    asyncio.run(story())
    assert model.passes == [1]


def test_a_failure_is_each_waiters_and_the_next_caller_computes(scorer: Scorer, memory: MemoryStore) -> None:
    """Nobody waits for ever, no key stays locked."""
    model = Gated(scorer)

    async def story() -> None:
        async with calling(model, memory, service_settings(scorer)) as client:
            await client.put("/features/new", json={"features": B})
            model.fails = True
            found = await asyncio.gather(*(client.get("/score/new") for _ in range(5)))
            assert {answer.status_code for answer in found} == {500}
            model.fails = False
            assert (await client.get("/score/new")).status_code == 200

    asyncio.run(story())


def test_new_features_are_not_answered_from_a_computation_with_the_old(scorer: Scorer, memory: MemoryStore) -> None:
    """After PUT has answered, everybody gets the new features' score, and the old one is not kept."""
    model = Gated(scorer)

    async def story() -> None:
        publish(memory.store, scorer, {"known": A})
        async with calling(model, memory, service_settings(scorer)) as client:
            await client.put("/features/new", json={"features": B})
            with held(model):
                old = asyncio.create_task(client.get("/score/new"))
                await eventually(lambda: bool(model.passes))
                assert (await client.put("/features/new", json={"features": A})).status_code == 204
                new = asyncio.create_task(client.get("/score/new"))
                await client.get("/livez")
            assert (await old).json()["scores"] == {"buys": 0.3100255}
            assert (await new).json()["scores"] == {"buys": 0.8581489}
            await eventually(lambda: _is(client, "/score/new", lambda answer: answer.json()["source"] == "cache"))
            assert (await client.get("/score/new")).json()["scores"] == {"buys": 0.8581489}

    asyncio.run(story())


def test_a_thousand_disconnected_callers_and_a_thousand_good_ones(scorer: Scorer, memory: MemoryStore) -> None:
    """After 1,000 calls that were given up, the next 1,000 all succeed, and the gauges are back at zero."""
    model = Gated(scorer)

    async def story() -> None:
        settings = service_settings(scorer, write_back=False)
        async with calling(model, memory, settings) as client:
            await client.put("/features/new", json={"features": B})
            for _ in range(10):
                calls = [asyncio.create_task(_inline_or_entity(client, number)) for number in range(100)]
                for _ in range(3):
                    await client.get("/livez")
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
            for _ in range(10):
                found = await asyncio.gather(*(_inline_or_entity(client, number) for number in range(100)))
                assert set(found) == {200}
            text = (await client.get("/metrics")).text
        assert "\nforescore_queue_rows 0.0\n" in text

    asyncio.run(story())


async def _inline_or_entity(client: httpx2.AsyncClient, number: int) -> int:
    if number % 2:
        return (await client.get("/score/new")).status_code
    answer = await client.post("/score", json={"items": [{"features": A}]})
    assert "scores" in answer.json()["results"][0]
    return answer.status_code


def test_too_much_to_do_is_refused_item_by_item(scorer: Scorer, memory: MemoryStore) -> None:
    """What needs a pass gets 503 with Retry-After; what the cache has is answered. Afterwards all is as before."""
    model = Gated(scorer)
    publish(memory.store, scorer, {"known": A})
    settings = service_settings(scorer, max_queue_rows=1)
    with serving(model, memory, settings) as client, ThreadPoolExecutor(2) as pool:  # type: ignore[arg-type]
        client.put("/features/new", json={"features": B})
        with held(model):
            running = pool.submit(client.post, "/score", json={"items": [{"features": A}]})
            wait_until(lambda: model.passes == [1])
            waiting = pool.submit(client.post, "/score", json={"items": [{"features": A}]})
            wait_until(lambda: _metric(client, "forescore_queue_rows") == 1)
            many = client.post("/score", json={"items": [{"entity_id": "known"}, {"features": C}]}).json()["results"]
            one = client.get("/score/new")
        assert {running.result(30).status_code, waiting.result(30).status_code} == {200}
        assert client.get("/score/new").status_code == 200
        assert _metric(client, 'forescore_shed_rows_total{reason="queue_full"}') == 2

    assert many[0]["scores"] == {"buys": 0.8581489}
    assert (many[1]["error"]["status"], many[1]["error"]["type"]) == (503, "urn:forescore:problem:overloaded")
    assert (one.status_code, one.json()["type"], one.headers["retry-after"]) == (
        503,
        "urn:forescore:problem:overloaded",
        "2",
    )


def test_the_process_says_that_it_lives_while_a_pass_runs(scorer: Scorer, memory: MemoryStore) -> None:
    """Probes and cached scores wait for no forward pass."""
    model = Gated(scorer)
    publish(memory.store, scorer, {"known": A})
    with serving(model, memory) as client, ThreadPoolExecutor(1) as pool:  # type: ignore[arg-type]
        with held(model):
            running = pool.submit(client.post, "/score", json={"items": [{"features": A}]})
            wait_until(lambda: model.passes == [1])
            assert client.get("/livez").status_code == 200
            assert client.get("/score/known").json()["source"] == "cache"
        assert running.result(30).status_code == 200
