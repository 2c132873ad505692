import asyncio
import json
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any

import pytest
from support.clients import (
    NOW,
    URL,
    Kind,
    Script,
    answer,
    call,
    dripping_server,
    played,
    problem_body,
    score_body,
)
from support.servers import dead_port, hung_server

from shared.client.clients import AsyncForescoreClient, ForescoreClient
from shared.client.problems import (
    InvalidId,
    RejectedFeatures,
    TooLate,
    Unavailable,
    UnexpectedAnswer,
    UnknownEntity,
    Unreachable,
)
from shared.client.results import Score
from shared.errors import SettingsError

GOOD = answer(score_body())


def test_a_score_is_a_typed_value(kind: Kind) -> None:
    """Everything that the service says of a score is there, times as times, and cannot be changed."""
    score = played(kind, Script([answer(score_body(data_as_of="2026-11-30T00:00:00Z", added_later=1))]), "score", "a")

    assert score == Score(
        entity_id="a",
        scores={"buys": 0.8581489},
        prediction={"buys": True},
        model="purchase",
        model_version="1",
        snapshot="1-A",
        source="cache",
        scored_at=NOW,
        data_as_of=datetime(2026, 11, 30, tzinfo=UTC),
        age_seconds=14400,
        parity="exact",
    )
    with pytest.raises(FrozenInstanceError):
        score.age_seconds = 0


@pytest.mark.parametrize(
    ("entity_id", "path"),
    [
        ("C0042", "/score/C0042"),
        (5, "/score/5"),
        ("kg/s", "/score/kg%2Fs"),
        ("a?b#c", "/score/a%3Fb%23c"),
        ("100%", "/score/100%25"),
        ("%2E%2E", "/score/%252E%252E"),
        ("../a", "/score/..%2Fa"),
        ("...", "/score/..."),
        (" a+b ", "/score/%20a%2Bb%20"),
        ("\u65e5", "/score/%E6%97%A5"),
        ("", "/score/"),
    ],
)
def test_an_id_is_escaped_whole(kind: Kind, entity_id: str | int, path: str) -> None:
    """No character of an id has a meaning in the path, whatever it would mean there."""
    script = Script([answer(score_body(str(entity_id)))])

    played(kind, script, "score", entity_id)
    assert script.paths == [path]


@pytest.mark.parametrize("entity_id", [".", ".."])
def test_a_dot_segment_goes_in_the_body(kind: Kind, entity_id: str) -> None:
    """An id that paths lose on their way is asked for by POST, with the same results and errors."""
    script = Script([answer({"snapshot": None, "results": [score_body(entity_id)]})])
    bad = Script([answer({"snapshot": None, "results": [{"error": problem_body("unknown-entity", 404)}]})])

    assert played(kind, script, "score", entity_id).entity_id == entity_id
    assert (script.paths, json.loads(script.asked[0].content)) == (["/score"], {"items": [{"entity_id": entity_id}]})
    with pytest.raises(UnknownEntity):
        played(kind, bad, "score", entity_id)


def test_the_key_is_a_bearer_token(kind: Kind) -> None:
    """The key goes into the header of every request, and without a key there is no such header."""
    script = Script([GOOD])

    played(kind, script, "score", "a", key="k-1")
    played(kind, script, "score", "a")
    assert [one.headers.get("authorization") for one in script.asked] == ["Bearer k-1", None]


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "\u00e9"])
def test_a_key_that_no_header_can_carry_is_refused(kind: Kind, key: str) -> None:
    """The error does not repeat the key."""
    with pytest.raises(SettingsError, match=r"^client: a key is printable ASCII without blanks$"):
        played(kind, Script([GOOD]), "score", "a", key=key)


@pytest.mark.parametrize(
    "url", ["scores:8000", "ftp://a", "http://", "", "http://a/?x=1", "http://1.2.3.999", "http://u:pw@"]
)
def test_an_address_is_one(kind: Kind, url: str) -> None:
    """An address that cannot be is refused when the client is made, and not repeated: it may hold a password."""
    with pytest.raises(
        SettingsError, match=r"^client: the address is http:// or https://, a host, and perhaps a port and a path$"
    ):
        played(kind, Script([GOOD]), "score", "a", url=url)


@pytest.mark.parametrize("url", ["http://h/below", "http://h/below/"])
def test_a_service_may_be_below_a_path(kind: Kind, url: str) -> None:
    """Behind a proxy the service is where the address says."""
    script = Script([GOOD])

    played(kind, script, "score", "a", url=url)
    assert script.paths == ["/below/score/a"]


def test_a_client_is_opened_before_it_asks() -> None:
    """Without its block a client has no connections, and says so."""
    with pytest.raises(SettingsError, match="with ForescoreClient"):
        ForescoreClient(URL).score("a")
    with pytest.raises(SettingsError, match="async with AsyncForescoreClient"):
        asyncio.run(AsyncForescoreClient(URL).score("a"))


def test_features_are_put_as_they_are(kind: Kind) -> None:
    """The id is in the path, the features are in the body, and there is nothing to return."""
    script = Script([answer(None, 204)])

    assert played(kind, script, "put_features", "kg/s", {"visits": 1, "basket": float("nan")}) is None
    (asked,) = script.asked
    assert (asked.method, script.paths) == ("PUT", ["/features/kg%2Fs"])
    assert json.loads(asked.content) == {"features": {"visits": 1, "basket": None}}
    assert asked.headers["content-type"] == "application/json"


def test_features_that_cannot_be_sent_are_rejected(kind: Kind) -> None:
    """The error is the service's own kind, and no request is made."""
    script = Script([GOOD])

    with pytest.raises(RejectedFeatures) as raised:
        played(kind, script, "put_features", "a", {"visits": float("inf")})
    assert (raised.value.code, raised.value.field, raised.value.problem.entity_id) == ("not_finite", "visits", "a")
    assert script.asked == []


@pytest.mark.parametrize(("method", "arguments"), [("score", ()), ("put_features", ({},))])
def test_an_id_that_cannot_be_is_refused_without_asking(kind: Kind, method: str, arguments: tuple[Any, ...]) -> None:
    """What has no bytes cannot be asked for."""
    script = Script([GOOD])

    with pytest.raises(InvalidId):
        played(kind, script, method, "\ud800", *arguments)
    assert script.asked == []


def test_a_proxys_503_is_no_readiness(kind: Kind) -> None:
    """Readiness comes from the service itself; a gateway that has none behind it is an outage."""
    with pytest.raises(Unavailable):
        played(kind, Script([answer("<html>", 503)]), "ready")
    with pytest.raises(UnexpectedAnswer):
        played(kind, Script([answer("<html>", 200)]), "ready")


def test_a_degraded_service_is_ready(kind: Kind) -> None:
    """Without its store a service answers what it can, so it is ready, and says why it is not well."""
    readiness = played(kind, Script([answer({"status": "degraded", "reason": "no store"})]), "ready")

    assert readiness
    assert (readiness.status, readiness.reason) == ("degraded", "no store")


def test_a_port_where_nobody_listens(kind: Kind) -> None:
    """A refused connection is Unreachable."""
    with pytest.raises(Unreachable):
        call(kind, f"http://127.0.0.1:{dead_port()}", "score", "a")


def test_a_port_where_nobody_answers(kind: Kind) -> None:
    """A server that takes the connection and says nothing holds the caller until his timeout and no longer."""
    with hung_server() as port, pytest.raises(TooLate, match=r"within 0\.2 s, in one try"):
        call(kind, f"http://127.0.0.1:{port}", "score", "a", timeout=0.2)


def test_an_answer_that_does_not_end(kind: Kind) -> None:
    """A server that sends a byte now and then holds the caller until his timeout, though no single wait is long."""
    with dripping_server() as port, pytest.raises(TooLate, match=r"within 0\.3 s, in one try"):
        call(kind, f"http://127.0.0.1:{port}", "score", "a", timeout=0.3)
