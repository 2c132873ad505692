"""What stood in the way of an answer: a frozen value, and the error that is raised with it.

::

    ForescoreProblem         any answer that is not what was asked for
    ├── UnknownEntity        404: no score and no features of that entity; also a LookupError
    ├── InvalidId            422: the text cannot be an entity id; also a ValueError
    ├── RejectedFeatures     422: the features break a rule, `code` and `field` say which; also a ValueError
    ├── NotCached            504: only_if_cached was wished, and the cache has no score that will do; also a LookupError
    ├── Unauthorized         401: the key is missing or wrong
    ├── Forbidden            403: the key has not the scope that this needs
    ├── Unavailable          429, 502, 503: not just now, and trying again did not help in time
    ├── TooLate              504: no answer in time, the service's or the caller's; also a TimeoutError
    ├── Unreachable          nothing answered; also a ConnectionError
    └── UnexpectedAnswer     what answered is not a Forescore service, or is one of another age

No error carries a feature value or the key.
"""

from dataclasses import dataclass
from http import HTTPStatus

TYPE = "urn:forescore:problem:"
INSTANCE = "urn:forescore:request:"
NOT_CACHED = "not-cached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why there is no score. ``error()`` is the same as an error that can be raised.

    ``status`` is HTTP's, None where nothing answered. ``type`` is the slug of docs/errors.md, such as
    ``unknown-entity``. ``code`` and ``field`` say which rule was broken by which feature. Under ``error_id`` the
    service's log has the request. ``retry_after`` is in seconds, where the service named a time.
    """

    status: int | None
    type: str
    title: str
    detail: str
    code: str | None = None
    field: str | None = None
    error_id: str | None = None
    retry_after: float | None = None
    entity_id: str | None = None

    def error(self) -> "ForescoreProblem":
        """The error to raise: its class follows from the type, and where that is not known, from the status."""
        kind = _BY_TYPE.get(self.type) or _BY_STATUS.get(self.status) or ForescoreProblem
        return kind(self)

    def __str__(self) -> str:
        logged = f" (request {self.error_id})" if self.error_id else ""
        return f"{self.title}: {self.detail}{logged}"


class ForescoreProblem(Exception):
    """A call to a Forescore service that brought no answer. ``problem`` has all that is known of it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem
        self.status = problem.status
        self.type = problem.type
        self.title = problem.title
        self.detail = problem.detail
        self.code = problem.code
        self.field = problem.field
        self.error_id = problem.error_id
        self.retry_after = problem.retry_after

    def __str__(self) -> str:
        return str(self.problem)


class UnknownEntity(ForescoreProblem, LookupError):
    """There is neither a score nor features of that entity."""


class InvalidId(ForescoreProblem, ValueError):
    """The text cannot be an entity id."""


class RejectedFeatures(ForescoreProblem, ValueError):
    """The features break a rule of the schema: ``code`` names the rule, ``field`` the feature."""


class NotCached(ForescoreProblem, LookupError):
    """The cache has no score as it was wished, and the wish forbids another. Asking again changes nothing."""


class Unauthorized(ForescoreProblem):
    """The key is missing or wrong."""


class Forbidden(ForescoreProblem):
    """The key is known, and does not allow this."""


class Unavailable(ForescoreProblem):
    """Not just now: the service is loading, overloaded, or has lost its store."""


class TooLate(ForescoreProblem, TimeoutError):
    """There was no answer in time: within the service's deadline, or within the ``timeout`` of the call."""


class Unreachable(ForescoreProblem, ConnectionError):
    """Nothing answered at that address."""


class UnexpectedAnswer(ForescoreProblem):
    """What answered does not speak as this client's service does: the address or the versions are wrong."""


_BY_TYPE: dict[str, type[ForescoreProblem]] = {
    "unknown-entity": UnknownEntity,
    NOT_CACHED: NotCached,
    "invalid-entity-id": InvalidId,
    "row-rejected": RejectedFeatures,
    "unreachable": Unreachable,
    "unexpected-answer": UnexpectedAnswer,
}
_BY_STATUS: dict[int | None, type[ForescoreProblem]] = {
    HTTPStatus.UNAUTHORIZED: Unauthorized,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.TOO_MANY_REQUESTS: Unavailable,
    HTTPStatus.BAD_GATEWAY: Unavailable,
    HTTPStatus.SERVICE_UNAVAILABLE: Unavailable,
    HTTPStatus.GATEWAY_TIMEOUT: TooLate,
}


def unreachable(where: str, why: str, tries: int) -> Problem:
    """Nothing answered; ``why`` names the kind of failure."""
    return Problem(
        status=None,
        type="unreachable",
        title="The service cannot be reached",
        detail=f"{why} at {where}, {_times(tries)}; check the address and that the service runs",
    )


def too_late(seconds: float, tries: int) -> Problem:
    """The caller's own deadline has passed."""
    return Problem(
        status=504,
        type="deadline-exceeded",
        title="Deadline exceeded",
        detail=f"no answer within {seconds:g} s, {_times(tries)}; give the call a longer timeout",
    )


def invalid_id(rule: str) -> Problem:
    """An id that cannot be sent as it is."""
    return Problem(status=422, type="invalid-entity-id", title="Invalid entity id", detail=rule)


def rejected(rule: str, code: str, field: str | None) -> Problem:
    """Features that JSON cannot carry, in the words that the service has for their like."""
    title = "The features break a rule of the schema"
    return Problem(status=422, type="row-rejected", title=title, detail=rule, code=code, field=field)


def unexpected(status: int, what: str) -> Problem:
    """An answer that cannot be read as what was asked for."""
    return Problem(
        status=status,
        type="unexpected-answer",
        title="Not an answer of this service",
        detail=f"{what}; check the address, and that client and service are of one version",
    )


def _times(tries: int) -> str:
    return "in one try" if tries == 1 else f"in {tries} tries"
