import pickle

import httpx2
import pytest
from support.clients import Kind, Script, answer, played, refusal, score_body

from service import problems as services_problems
from shared.client import problems
from shared.client.attempts import ClientPolicy
from shared.client.problems import (
    ForescoreProblem,
    InvalidId,
    NotCached,
    Problem,
    RejectedFeatures,
    TooLate,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    UnknownEntity,
)
from shared.errors import RequestError


@pytest.mark.parametrize(
    ("response", "error", "also"),
    [
        (refusal("unknown-entity", 404), UnknownEntity, LookupError),
        (refusal("invalid-entity-id", 422), InvalidId, ValueError),
        (refusal("row-rejected", 422, code="missing", field="basket"), RejectedFeatures, ValueError),
        (refusal("not-cached", 504), NotCached, LookupError),
        (refusal("unauthorized", 401), Unauthorized, ForescoreProblem),
        (refusal("overloaded", 503), Unavailable, ForescoreProblem),
        (refusal("too-many-requests", 429), Unavailable, ForescoreProblem),
        (refusal("not-ready", 503), Unavailable, ForescoreProblem),
        (refusal("deadline-exceeded", 504), TooLate, TimeoutError),
        (answer("<html>", 502), Unavailable, ForescoreProblem),
        (answer("<html>", 504), TooLate, TimeoutError),
        (answer("<html>", 200), UnexpectedAnswer, ForescoreProblem),
        (answer("<html>", 404), UnexpectedAnswer, ForescoreProblem),
        (answer(None, 302, location="/login"), UnexpectedAnswer, ForescoreProblem),
        (answer({"type": "about:blank", "title": "x", "status": 404, "detail": ""}, 404), UnexpectedAnswer, Exception),
        (answer({"entity_id": "a"}), UnexpectedAnswer, ForescoreProblem),
        (answer(score_body("b")), UnexpectedAnswer, ForescoreProblem),
        (answer(score_body(scores={"buys": None})), UnexpectedAnswer, ForescoreProblem),
    ],
)
def test_each_problem_has_its_class(
    kind: Kind, response: httpx2.Response, error: type[ForescoreProblem], also: type[Exception]
) -> None:
    """A problem's class follows from its type; what another server says is never taken for the service's word."""
    with pytest.raises(error) as raised:
        played(kind, Script([response]), "score", "a", policy=ClientPolicy(attempts=1))
    assert type(raised.value) is error
    assert isinstance(raised.value, also)


def test_the_services_other_problems_have_the_common_class(kind: Kind) -> None:
    """A problem without a class of its own is told in full."""
    with pytest.raises(ForescoreProblem) as raised:
        played(kind, Script([refusal("features-not-kept", 409)]), "put_features", "a", {"visits": 1})
    assert (type(raised.value), raised.value.status, raised.value.type) == (ForescoreProblem, 409, "features-not-kept")


def test_an_error_says_all_that_the_service_said(kind: Kind) -> None:
    """Status, type, title, detail, code, field, the id in the log and when to come back are attributes."""
    response = refusal("row-rejected", 422, later="7", code="missing", field="basket", title="Rejected")

    with pytest.raises(RejectedFeatures) as raised:
        played(kind, Script([response]), "score", "a")
    error = raised.value
    assert (error.status, error.type, error.title, error.detail) == (422, "row-rejected", "Rejected", "so it is")
    assert (error.code, error.field, error.error_id, error.retry_after) == ("missing", "basket", "77aa", 7)
    assert str(error) == "Rejected: so it is (request 77aa)"


def test_an_error_survives_its_way_between_processes() -> None:
    """A worker's error reaches the one who waits for it whole, of each class."""
    for error in (ForescoreProblem, *ForescoreProblem.__subclasses__()):
        given = error(Problem(status=404, type="t", title="T", detail="d", error_id="e"))
        copy = pickle.loads(pickle.dumps(given))  # noqa: S301 - our own bytes
        assert (type(copy), copy.problem, str(copy)) == (error, given.problem, "T: d (request e)")


def test_the_tree_of_problems_is_drawn_as_it_is() -> None:
    """The picture at the head of problems.py has every class."""
    drawn = [
        line.partition("\u2500 ")[2].split()[0] for line in (problems.__doc__ or "").splitlines() if "\u2500 " in line
    ]

    assert drawn == [error.__name__ for error in ForescoreProblem.__subclasses__()]


def test_types_and_request_ids_are_written_as_the_service_writes_them() -> None:
    """Client and service agree on the two prefixes, and the service has every type that the client has a class for."""
    assert (problems.TYPE, problems.INSTANCE) == (services_problems.TYPE, services_problems.INSTANCE)
    local = {"unreachable", "unexpected-answer"}
    assert problems._BY_TYPE.keys() - local <= {error.problem for error in RequestError.__subclasses__()}
