"""What the API promises is committed, complete, and true of what it answers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from support.publish import publish
from support.services import opener, serving
from support.snapshots import snapshot_meta
from support.tables import DOCS

from service.app import create_app
from service.runtime import Dependencies
from shared.errors import StoreDown
from shared.scorer import Scorer
from shared.settings import Settings
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}


def _document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def test_the_committed_document_is_the_one_that_is_served() -> None:
    """docs/openapi.json changes in the commit that changes the API."""
    committed = Path(DOCS / "openapi.json").read_text(encoding="utf-8")

    assert json.loads(committed) == _document(), (
        "write it anew: .venv/bin/python -m service.contract > docs/openapi.json"
    )


def test_every_reference_leads_somewhere() -> None:
    """A client can be made from the document."""
    document = _document()
    text = json.dumps(document)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}

    assert names <= document["components"]["schemas"].keys()


def test_every_refusal_is_described_as_a_problem() -> None:
    """No route answers an error in another shape than application/problem+json; a probe tells its readiness."""
    for path, operations in _document()["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400 and path not in {"/readyz", "/healthz"}:
                    assert list(response["content"]) == ["application/problem+json"], path


def test_every_path_is_described() -> None:
    """Score, features, model, snapshots and probes are all there, each with a summary."""
    paths = _document()["paths"]

    assert set(paths) == {
        "/score/{entity_id}", "/score", "/features/{entity_id}", "/model", "/snapshots",
        "/livez", "/readyz", "/healthz", "/metrics",
    }  # fmt: skip
    assert all(operation["summary"] for operations in paths.values() for operation in operations.values())


def test_an_answer_has_the_headers_that_are_declared(scorer: Scorer, memory: MemoryStore) -> None:
    """Of each answer, every header is in the document, and every header that the document requires is there."""
    paths = _document()["paths"]
    publish(memory.store, scorer, {"a": ROW, "bad": {"visits": 1}})
    seen: set[tuple[str, str, int]] = set()
    with serving(scorer, memory) as client:
        for answer, path in _answers(client, memory):
            method = answer.request.method.lower()
            declared = paths[path][method]["responses"][str(answer.status_code)].get("headers", {})
            names = {name.lower() for name in declared}
            required = {name.lower() for name, header in declared.items() if header["required"]}
            found = set(answer.headers) - {"content-type", "content-length"}
            seen.add((method, path, answer.status_code))
            assert required <= found <= names, (method, path, answer.status_code)

    assert seen >= {("get", "/score/{entity_id}", status) for status in (200, 304, 400, 404, 409, 422, 503, 504)}
    assert seen >= {("post", "/score", status) for status in (200, 400, 413)}
    assert {path for _, path, _ in seen} == set(paths)


def _answers(client: TestClient, memory: MemoryStore) -> Iterator[tuple[Any, str]]:
    """Answers of each kind, with the path of the document that each is of."""
    score, features = "/score/{entity_id}", "/features/{entity_id}"
    hit = client.get("/score/a")
    yield hit, score
    yield client.get("/score/a", headers={"if-none-match": hit.headers["etag"]}), score
    yield client.get("/score/nobody"), score
    yield client.get("/score/bad"), score
    yield client.get("/score/a?snapshot=x&model_version=y"), score
    yield client.get("/score/a?snapshot=none"), score
    yield client.get("/score/nobody", headers={"cache-control": "only-if-cached"}), score
    yield client.put("/features/new", json={"features": ROW}), features
    yield client.put("/features/new", json={"features": {"visits": "x"}}), features
    yield client.get("/score/new"), score
    yield client.post("/score", json={"items": [{"entity_id": "a"}, {"features": ROW}]}), "/score"
    yield client.post("/score", content="{"), "/score"
    yield client.post("/score", json={"items": [{}] * 1001}), "/score"
    yield client.delete("/features/new"), features
    for path in ("/model", "/snapshots", "/livez", "/readyz", "/healthz", "/metrics"):
        yield client.get(path), path
    memory.store.writer.begin(snapshot_meta("1-W"))  # being written
    yield client.get("/score/a?snapshot=1-W"), score
    memory.failure = StoreDown("gone")
    yield client.get("/score/a"), score
    yield client.get("/snapshots"), "/snapshots"


def test_what_is_not_ready_says_when_to_come_back(memory: MemoryStore) -> None:
    """503 of a probe and of a score call have the headers that are declared, Retry-After among them."""
    paths = _document()["paths"]
    app = create_app(Settings(), dependencies=Dependencies(open_store=opener(memory)))
    with TestClient(app) as client:
        for path in ("/readyz", "/healthz", "/model"):
            answer = client.get(path)
            declared = paths[path]["get"]["responses"]["503"]["headers"]
            assert answer.status_code == 503
            assert {name.lower() for name in declared} >= set(answer.headers) - {"content-type", "content-length"}
            assert "retry-after" in answer.headers


def test_the_page_of_the_docs_needs_nothing_from_elsewhere(scorer: Scorer, memory: MemoryStore) -> None:
    """/docs and /redoc name no other host, and all that they load is served here."""
    with serving(scorer, memory) as client:
        for page in ("/docs", "/redoc"):
            text = client.get(page).text
            loaded = re.findall(r'(?:src|href)="([^"]+)"', text)
            assert "://" not in "".join(loaded)
            assert len(loaded) >= 2
            assert {client.get(path).status_code for path in loaded} == {200}
