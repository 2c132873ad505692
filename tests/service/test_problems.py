import asyncio
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from starlette.testclient import TestClient
from support.publish import publish
from support.services import service_settings, serving

from service import problems
from service.access import AccessLog
from shared.clock import MonotonicClock
from shared.encode import Encoded
from shared.errors import Overloaded
from shared.metrics import Metrics
from shared.scorer import Scorer
from shared.snapshot import Lookup, SnapshotMeta
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}
MARKER = "T4INT"
NUMBER = 918273.5


class _Faulty:
    """A scorer whose forward pass raises, with an error that tells the value, when ``visits`` is the marked number."""

    def __init__(self, scorer: Scorer, error: Exception) -> None:
        self._scorer = scorer
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    def score(self, encoded: Encoded) -> Any:
        if (encoded.numeric[:, 0] == NUMBER).any():
            raise self._error
        return self._scorer.score(encoded)


def _lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in log.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/nothing", 404, "not-found"),
        ("GET", "/score", 405, "method-not-allowed"),
        ("DELETE", "/score/a", 405, "method-not-allowed"),
        ("GET", "/livez/", 404, "not-found"),
        ("POST", "/score/", 405, "method-not-allowed"),
    ],
)
def test_what_the_router_refuses_is_a_problem(
    scorer: Scorer, memory: MemoryStore, method: str, path: str, status: int, slug: str
) -> None:
    """Every error has one shape, also where no route was found, and no path is redirected to another."""
    with serving(scorer, memory) as client:
        answer = client.request(method, path)

    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["type"] == f"urn:forescore:problem:{slug}"
    assert answer.json()["instance"] == f"urn:forescore:request:{answer.headers['x-request-id']}"
    assert ("allow" in answer.headers) == (status == 405)


def test_an_error_that_nobody_foresaw_gives_an_id_that_the_log_has(
    scorer: Scorer, memory: MemoryStore, log: io.StringIO
) -> None:
    """500 with an opaque id; kind and place of the error are in the log under that id, its text is in neither."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer, memory) as client:
        memory.async_store.reader.peek = memory.async_store.reader.lookup = _raise  # type: ignore[method-assign]
        answer = client.get("/score/a")
        assert client.get("/livez").status_code == 200

    assert (answer.status_code, answer.json()["type"]) == (500, "urn:forescore:problem:internal-error")
    call = answer.headers["x-request-id"]
    assert answer.json()["instance"].endswith(call)
    failed, told = [line for line in _lines(log) if line.get("id") == call]
    assert (failed["event"], failed["error"], told["status"]) == ("request failed", "ValueError", 500)
    assert failed["at"].startswith("test_problems.py:")
    assert MARKER not in log.getvalue() + answer.text


def test_the_deadline_is_kept_whatever_hangs(scorer: Scorer, memory: MemoryStore) -> None:
    """504 as a problem when the answer is not there in time, and the next request is served."""
    publish(memory.store, scorer, {"a": ROW})
    lookup = memory.async_store.reader.lookup
    with serving(scorer, memory, service_settings(scorer, deadline_ms=50)) as client:
        memory.async_store.reader.lookup = _hang  # type: ignore[method-assign]
        answers = [client.get("/score/a"), client.post("/score", json={"items": [{"entity_id": "a"}]})]
        assert [(one.status_code, one.json()["type"]) for one in answers] == [
            (504, "urn:forescore:problem:deadline-exceeded")
        ] * 2
        memory.async_store.reader.lookup = lookup  # type: ignore[method-assign]
        assert client.get("/score/a").status_code == 200


def test_no_feature_value_leaves_the_process(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """A marked value in features that are fine, broken, unknown, kept or fatal is in no log, metric or error."""
    marked: list[dict[str, object]] = [
        {**ROW, "visits": NUMBER},
        {**ROW, "visits": MARKER},
        {**ROW, "visits": [MARKER]},
        {**ROW, "other": MARKER},
        {"visits": MARKER},
    ]
    told: list[str] = []
    with serving(scorer, memory) as client:
        for row in marked:
            answers = client.post("/score", json={"items": [{"entity_id": "e", "features": row}]})
            told.append(answers.text)
            told.append(client.put("/features/e", json={"features": row}).text)
        told.append(client.post("/score", content=f'{{"items": [{{"{MARKER}": ').text)
        told.append(client.get("/score/e").text)
        told.append(client.get("/metrics").text)
    for fault in (ValueError(f"bad value {MARKER} {NUMBER}"), KeyError(MARKER)):
        with serving(_Faulty(scorer, fault), memory) as client:  # type: ignore[arg-type]
            told.append(client.post("/score", json={"items": [{"features": marked[0]}]}).text)
            told.append(client.get("/metrics").text)

    everything = "".join(told) + log.getvalue()
    assert MARKER not in everything
    assert str(int(NUMBER)) not in everything


def test_a_row_that_the_model_fails_for_costs_itself(scorer: Scorer, memory: MemoryStore) -> None:
    """Online as in the batch: what raises for one row, alone, is that row's rejection; its neighbours are scored."""
    rows = [ROW, {**ROW, "visits": NUMBER}, ROW]
    with serving(_Faulty(scorer, ValueError(MARKER)), memory) as client:  # type: ignore[arg-type]
        results = client.post("/score", json={"items": [{"features": row} for row in rows]}).json()["results"]

    assert [one["scores"]["buys"] if "scores" in one else one["error"]["code"] for one in results] == [
        0.8581489,
        "forward_failed",
        0.8581489,
    ]


def test_a_model_that_fails_for_everything_is_a_fault(scorer: Scorer, memory: MemoryStore) -> None:
    """A model that returns the wrong number of rows for every row is no row's fault: 500, and the service lives."""
    with serving(_WrongShape(scorer), memory) as client:  # type: ignore[arg-type]
        answer = client.post("/score", json={"items": [{"features": ROW}]})
        assert (answer.status_code, answer.json()["type"]) == (500, "urn:forescore:problem:internal-error")
        assert client.get("/readyz").status_code == 200


def test_what_fastapi_finds_wrong_is_told_without_the_input() -> None:
    """Whatever a route declares, a request that breaks it is not repeated to the caller."""

    class Body(BaseModel):
        number: int

    app = FastAPI()
    app.add_middleware(AccessLog, metrics=Metrics(CollectorRegistry()), clock=MonotonicClock())
    problems.install(app, 2)

    @app.post("/route")
    async def route(body: Body, limit: int) -> None: ...

    answer = TestClient(app).post("/route", params={"limit": MARKER}, json={"number": MARKER})

    assert (answer.status_code, answer.json()["type"]) == (400, "urn:forescore:problem:bad-request")
    assert "body and the query" in answer.json()["detail"]
    assert MARKER not in answer.text


@pytest.mark.parametrize(
    ("measured", "told"), [(None, "7"), (0.0, "1"), (0.2, "1"), (1.0, "1"), (1.01, "2"), (1e9, "30")]
)
def test_when_to_come_back_is_measured(measured: float | None, told: str) -> None:
    """Whole seconds, rounded up, from 1 to 30; what the setting says where nothing was measured."""
    app = FastAPI()
    app.add_middleware(AccessLog, metrics=Metrics(CollectorRegistry()), clock=MonotonicClock())
    problems.install(app, 7)

    @app.get("/route")
    async def route() -> None:
        raise Overloaded("too much", retry_after=measured)

    answer = TestClient(app).get("/route")

    assert (answer.status_code, answer.headers["retry-after"]) == (503, told)


class _WrongShape(_Faulty):
    """A scorer that returns one row too many."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__(scorer, ValueError())

    def score(self, encoded: Encoded) -> Any:
        return np.zeros((len(encoded) + 1, 1), np.float32)


async def _raise(_meta: SnapshotMeta, _ids: Sequence[str]) -> list[Lookup]:
    raise ValueError(MARKER)


async def _hang(_meta: SnapshotMeta, _ids: Sequence[str]) -> list[Lookup]:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")
