import io
from typing import Any

import orjson
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient
from support.publish import publish
from support.services import serving

from service.access import AccessLog
from shared.clock import MonotonicClock
from shared.metrics import Metrics
from shared.scorer import Scorer
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}


def _requests(log: io.StringIO) -> list[dict[str, Any]]:
    lines = [orjson.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in lines if line["event"] == "request" and line["level"] == "info"]


def test_one_line_tells_one_request(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """Route, status, time, id of the request and of the entity, source and snapshot: no more, and once."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer, memory) as client:
        answer = client.get("/score/a")

    (line,) = _requests(log)
    assert line.pop("duration_ms") > 0
    assert line.pop("time")
    assert line == {
        "event": "request",
        "level": "info",
        "id": answer.headers["x-request-id"],
        "method": "GET",
        "route": "/score/{entity_id}",
        "status": 200,
        "entity_id": "a",
        "source": "cache",
        "snapshot": "1-A",
    }


def test_a_refusal_tells_its_problem(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """The line of a refused request names the problem's type."""
    with serving(scorer, memory) as client:
        client.get("/score/nobody")
        client.post("/score", content="{")
        client.get("/nothing")

    assert [(line["route"], line["status"], line["problem"]) for line in _requests(log)] == [
        ("/score/{entity_id}", 404, "unknown-entity"),
        ("/score", 400, "bad-request"),
        ("(none)", 404, "not-found"),
    ]


def test_a_bulk_tells_its_size(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """How many items, and of which snapshot; not which entities."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer, memory) as client:
        client.post("/score", json={"items": [{"entity_id": "a"}, {"entity_id": "b"}]})

    (line,) = _requests(log)
    assert (line["items"], line["snapshot"]) == (2, "1-A")
    assert "entity_id" not in line


def test_probes_are_quiet(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """What machines ask every few seconds is logged for debugging only."""
    with serving(scorer, memory) as client:
        for path in ("/livez", "/readyz", "/healthz", "/metrics"):
            client.get(path)

    assert _requests(log) == []


def test_an_answer_that_breaks_off_has_its_line(log: io.StringIO) -> None:
    """An error after the headers were sent cannot become a problem any more; it is logged, and the request too."""

    async def breaks_off(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("secret")

    app = AccessLog(breaks_off, metrics=Metrics(CollectorRegistry()), clock=MonotonicClock())
    TestClient(app, raise_server_exceptions=False).get("/")

    assert [orjson.loads(line)["event"] for line in log.getvalue().splitlines()] == ["request failed", "request"]
    assert "secret" not in log.getvalue()
