"""What the committed OpenAPI document promises holds for whatever a caller makes of it, also over the fast lane."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from requests import Request
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.clients import ROWS, published
from support.fuzzing import budget
from support.publish import publish
from support.servers import ValkeyProcess
from support.services import ready_process, serving
from support.tables import DOCS

from shared.scorer import Scorer, open_scorer
from shared.testing.bundles import purchase_bundle
from shared.testing.store import MemoryStore

load_all_checks()
DECLARED = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENT = schemathesis.openapi.from_path(str(DOCS / "openapi.json"))
OPERATIONS = [operation.ok() for operation in DOCUMENT.get_all_operations()]
CASES = st.one_of(
    *(
        operation.as_strategy(generation_mode=mode, **given)
        for operation in OPERATIONS
        for mode in GenerationMode
        for given in ({}, {"path_parameters": {"entity_id": "0"}})
        if not given or operation.path_parameters
    )
)
"""Each operation, as the document allows it and as it does not, for an entity that is there and for any."""


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    return open_scorer(purchase_bundle(tmp_path_factory.mktemp("api") / "bundle"), device="cpu")


@pytest.fixture(scope="module")
def in_process(scorer: Scorer) -> Iterator[httpx2.Client]:
    memory = MemoryStore("purchase")
    publish(memory.store, scorer, {**ROWS, "bad": {"visits": 1}})
    with serving(scorer, memory) as client:
        yield client


@pytest.fixture(scope="module")
def over_the_lane(
    tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess, scorer: Scorer
) -> Iterator[httpx2.Client]:
    environment = published(valkey, scorer, ROWS)
    with ready_process(tmp_path_factory.mktemp("lane"), str(scorer.bundle.path), **environment) as client:
        yield client


@given(case=CASES)
@budget(60)
def test_in_this_process(in_process: httpx2.Client, case: Any) -> None:
    """Status, headers, media type and body are as declared, and nothing fails."""
    _try(in_process, case)


@given(case=CASES)
@budget(40)
def test_over_the_fast_lane(over_the_lane: httpx2.Client, case: Any) -> None:
    """The same of a real process, whose hits do not come from the framework."""
    _try(over_the_lane, case)


def _try(client: httpx2.Client, case: Any) -> None:
    answer = _sent(client, case)
    if answer is None:
        return
    assert answer.status_code < 500 or _is_wanted(answer), answer.text
    case.validate_response(answer, checks=DECLARED)


def _sent(client: httpx2.Client, case: Any) -> httpx2.Response | None:
    """The answer, or None for a request that no client of HTTP can write."""
    try:
        request = Request(**case.as_transport_kwargs(base_url=str(client.base_url).rstrip("/"))).prepare()
        built = client.build_request(
            request.method or "", request.url or "", headers=dict(request.headers), content=request.body
        )
    except (ValueError, TypeError, httpx2.InvalidURL):
        return None
    return client.send(built)


def _is_wanted(answer: httpx2.Response) -> bool:
    """504 is the answer to ``only-if-cached`` that HTTP itself names (RFC 9111, 5.2.1.7)."""
    return bool(answer.status_code == 504 and answer.json()["type"].endswith(":not-cached"))
