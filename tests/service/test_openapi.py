"""What the API promises is committed, complete, and true of what it answers."""

import json
from pathlib import Path
from typing import Any

from support.tables import DOCS

from service.app import create_app
from shared.settings import Settings


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
