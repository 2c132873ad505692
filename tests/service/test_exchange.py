"""An exchange without HTTP's machinery: the same bytes as the route sends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from support.polling import eventually
from support.publish import publish
from support.services import opener, service_settings

from service.access import Call
from service.app import create_app
from service.exchange import Reply, score_many, score_one
from service.online import Terms
from service.runtime import Dependencies, Live, Service
from shared.clock import MonotonicClock
from shared.errors import BadRequest, UnknownEntity
from shared.scorer import Scorer
from shared.telemetry import StageTimer
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

A = {"visits": 1, "returns": 0, "basket": 2}
B = {"visits": 0, "returns": 3, "basket": 1}


def _call() -> Call:
    return Call(id="1", start=0, stages=StageTimer(MonotonicClock()))


def _run(scorer: Scorer, memory: MemoryStore, story: Callable[[Service, httpx2.AsyncClient], Awaitable[None]]) -> None:
    """A service at a fixed time that writes nothing back: asked twice, it says the same twice."""
    dependencies = Dependencies(
        open_scorer=lambda _bundle, _settings: scorer, open_store=opener(memory), wall=FrozenClock(1_800_000_000)
    )
    app: FastAPI = create_app(service_settings(scorer, write_back=False), dependencies=dependencies)

    async def told() -> None:
        async with app.router.lifespan_context(app) as state:
            service: Service = state["service"]
            await eventually(lambda: isinstance(service.phase, Live))

            async def with_state(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, "state": dict(state)}, receive, send)

            transport = httpx2.ASGITransport(app=with_state)
            async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                await story(service, client)

    asyncio.run(told())


def _assert_same(reply: Reply, answer: httpx2.Response) -> None:
    assert (reply.status, reply.body) == (answer.status_code, answer.content)
    assert {name: answer.headers[name] for name in reply.headers} == dict(reply.headers)
    assert answer.headers.get("content-type") == reply.media_type


@pytest.mark.parametrize("entity", ["known", "new"])
def test_one_score_is_told_in_the_same_bytes(scorer: Scorer, memory: MemoryStore, entity: str) -> None:
    """A hit and a miss: status, headers and body, and 304 for a caller who has it."""
    publish(memory.store, scorer, {"known": A})

    async def story(service: Service, client: httpx2.AsyncClient) -> None:
        await client.put("/features/new", json={"features": B})
        call = _call()
        reply = await score_one(service, call, entity, Terms())
        _assert_same(reply, await client.get(f"/score/{entity}"))
        assert call.facts["source"] == ("cache" if entity == "known" else "online")
        tag = reply.headers["etag"]
        again = await score_one(service, _call(), entity, Terms(), tag)
        assert (again.status, again.body) == (304, b"")
        _assert_same(again, await client.get(f"/score/{entity}", headers={"if-none-match": tag}))

    _run(scorer, memory, story)


def test_many_scores_are_told_in_the_same_bytes(scorer: Scorer, memory: MemoryStore) -> None:
    """Entities, given features and an item that is no question."""
    publish(memory.store, scorer, {"known": A})
    body = b'{"items": [{"entity_id": "known"}, {"features": {"visits": 0, "returns": 3, "basket": 1}}, {}]}'

    async def story(service: Service, client: httpx2.AsyncClient) -> None:
        call = _call()
        reply = await score_many(service, call, body, Terms())
        _assert_same(reply, await client.post("/score", content=body))
        assert call.facts["items"] == 3

    _run(scorer, memory, story)


def test_errors_about_the_whole_are_raised(scorer: Scorer, memory: MemoryStore) -> None:
    """An unknown entity and a body that is none, for whoever serves to tell."""

    async def story(service: Service, _: httpx2.AsyncClient) -> None:
        with pytest.raises(UnknownEntity):
            await score_one(service, _call(), "nobody", Terms())
        with pytest.raises(BadRequest):
            await score_many(service, _call(), b"[", Terms())

    _run(scorer, memory, story)
