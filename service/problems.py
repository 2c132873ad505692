"""Errors as RFC 9457 problems. What a caller is told was written for callers; of the rest he gets the request's id."""

from collections.abc import Mapping, MutableMapping
from http import HTTPStatus
from math import ceil
from typing import Any

import orjson
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from shared.errors import (
    BadRequest,
    ForescoreError,
    HeadTooLarge,
    Overloaded,
    RequestError,
    RequestTooSlow,
    RowRejected,
    SnapshotError,
    StoreError,
    TooManyRequests,
    Unauthorized,
)
from shared.telemetry import Logger

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:forescore:problem:"
INSTANCE = "urn:forescore:request:"
CHALLENGE = 'Bearer realm="forescore"'
LONGEST_WAIT = 30
"""The most seconds of a measured Retry-After: who waits longer than that sees nothing of it when things get better."""

Told = RequestError | SnapshotError | StoreError
"""The errors whose text is for the caller; a store's is replaced, since it names the store's address."""

_DETAILS = {
    404: "there is nothing under this path; /docs lists the paths",
    405: "this path does not take this method; /docs lists the methods",
}
_log: Logger = structlog.get_logger()


def describe(error: Told) -> dict[str, object]:
    """The members of a problem; ``code`` and ``field`` where a row broke a rule."""
    detail = "the store cannot do this just now; try again" if isinstance(error, StoreError) else str(error)
    problem = _problem(error.problem, error.title, error.status, detail)
    if isinstance(error, RowRejected):
        problem |= {"code": error.code, "field": error.field}
    return problem


def install(app: FastAPI, retry_after_seconds: int) -> None:
    """Makes every error that a route or the router raises a problem."""

    async def told(request: Request, error: Exception) -> Response:
        if not isinstance(error, Told):
            raise error
        return retold(error, request.state.call.id, request.state.call.facts, retry_after_seconds)

    for kind in (RequestError, SnapshotError, StoreError):
        app.add_exception_handler(kind, told)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unrouted)


def retold(error: Told, call_id: str, facts: MutableMapping[str, Any], retry_after_seconds: int) -> Response:
    """The problem that an error is. ``facts`` of the call get its name."""
    if isinstance(error, StoreError):
        _log.warning("store error", id=call_id, exc_info=error)
    return _named(describe(error), call_id, facts, headers_of(error, retry_after_seconds))


def headers_of(error: Told, retry_after_seconds: int) -> dict[str, str]:
    """What HTTP has words for: when to come again, how to say who one is, and that a connection ends."""
    match error:
        case Unauthorized():
            return {"www-authenticate": CHALLENGE}
        case TooManyRequests(retry_after=None):
            return {"ratelimit-policy": error.policy, "ratelimit": error.state}
        case TooManyRequests():
            later = str(_retry_after(error, retry_after_seconds))
            return {"retry-after": later, "ratelimit-policy": error.policy, "ratelimit": error.state}
        case RequestTooSlow() | HeadTooLarge():
            return {"connection": "close"}
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return {"retry-after": str(_retry_after(error, retry_after_seconds))}
    return {}


def _retry_after(error: Told, otherwise: int) -> int:
    """Whole seconds until another try may help: measured, where that is known."""
    if isinstance(error, TooManyRequests) and error.retry_after is not None:
        return max(1, ceil(error.retry_after))
    measured = error.retry_after if isinstance(error, Overloaded) else None
    return otherwise if measured is None else min(LONGEST_WAIT, max(1, ceil(measured)))


def unexpected(call_id: str) -> Response:
    """What is said of an error that nobody foresaw: nothing but the id under which the log has it."""
    problem = _problem(ForescoreError.problem, ForescoreError.title, 500, "the log has more under this request's id")
    return _response(problem, call_id)


async def _invalid(request: Request, error: Exception) -> Response:
    """FastAPI's own text would repeat the caller's input."""
    if not isinstance(error, RequestValidationError):
        raise error
    places = sorted({str(one["loc"][0]) for one in error.errors()})
    refusal = BadRequest(f"the {' and the '.join(places)} of the request are not as /docs describes them")
    return _answer(request, describe(refusal))


async def _unrouted(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    phrase = HTTPStatus(error.status_code).phrase
    slug, detail = phrase.lower().replace(" ", "-"), _DETAILS.get(error.status_code, phrase)
    return _answer(request, _problem(slug, phrase, error.status_code, detail), error.headers)


def _answer(request: Request, problem: dict[str, object], headers: Mapping[str, str] | None = None) -> Response:
    return _named(problem, request.state.call.id, request.state.call.facts, headers)


def _named(
    problem: dict[str, object],
    call_id: str,
    facts: MutableMapping[str, Any],
    headers: Mapping[str, str] | None,
) -> Response:
    facts["problem"] = str(problem["type"]).removeprefix(TYPE)
    return _response(problem, call_id, headers)


def _problem(slug: str, title: str, status: int, detail: str) -> dict[str, object]:
    return {"type": TYPE + slug, "title": title, "status": status, "detail": detail}


def _response(problem: dict[str, object], call_id: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        orjson.dumps(problem | {"instance": INSTANCE + call_id}),
        status_code=int(str(problem["status"])),
        headers={"cache-control": "no-store", **(headers or {})},
        media_type=MEDIA_TYPE,
    )
