"""The shapes of requests and responses, for the OpenAPI document. Nothing is parsed or serialised through them."""

import json
import sys
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field

from service.doors import door_of
from service.problems import MEDIA_TYPE, TYPE


class Problem(BaseModel):
    """An RFC 9457 problem. `code` and `field` say which rule of the schema was broken, and by which feature."""

    type: Annotated[str, Field(examples=[f"{TYPE}unknown-entity"])]
    title: str
    status: int
    detail: str
    instance: Annotated[str | None, Field(description="Names the request; the log has it under the same id.")] = None
    code: str | None = None
    field: str | None = None


class Score(BaseModel):
    """A score and where it comes from."""

    model_config = ConfigDict(protected_namespaces=())

    entity_id: str | None
    scores: Annotated[dict[str, float], Field(description="The shortest decimal of each float32 score, by name.")]
    prediction: Annotated[
        dict[str, bool | str | list[str]],
        Field(description="What the scores say, for each output that has a threshold or classes."),
    ]
    model: str
    model_version: Annotated[str, Field(description="The version that computed the numbers.")]
    snapshot: Annotated[
        str | None,
        Field(description="The snapshot that holds the score; null for a score computed for this answer."),
    ]
    source: Annotated[
        Literal["cache", "file", "online"],
        Field(
            description="cache: the store. file: the snapshot's own file, while the store cannot tell. "
            "online: computed for this answer."
        ),
    ]
    scored_at: str
    data_as_of: Annotated[str | None, Field(description="Of when the features are, where that is known.")]
    age_seconds: Annotated[int, Field(description="Seconds since `scored_at`.")]
    parity: Annotated[
        Literal["exact", "tolerance"] | None,
        Field(
            description="exact: this process was proved to compute the same bits as the one that scored the active "
            "snapshot. null: there is no snapshot to compare with."
        ),
    ]


class Item(BaseModel):
    """What to score: an entity as it is known here, features as given here, or both: the features, under that id."""

    model_config = ConfigDict(extra="forbid")

    entity_id: Annotated[str | int | None, Field(description="Text, or an integer, which is written in decimal.")] = (
        None
    )
    features: dict[str, Any] | None = None


class Items(BaseModel):
    model_config = ConfigDict(extra="forbid")

    items: list[Item]


class ItemError(BaseModel):
    """An item that has no score, and why."""

    entity_id: str | None
    error: Problem


class Results(BaseModel):
    """One result for each item, in order. All that come from the cache come from one snapshot."""

    snapshot: str | None
    results: list[Score | ItemError]


class Features(BaseModel):
    model_config = ConfigDict(extra="forbid")

    features: Annotated[dict[str, Any], Field(description="The name and the value of each feature of the schema.")]
    ttl_seconds: Annotated[
        int | None,
        Field(ge=1, description="How long to keep them; at most, and by default, FORESCORE_FEATURES__TTL_SECONDS."),
    ] = None


class Snapshot(BaseModel):
    """A snapshot that is in the store."""

    model_config = ConfigDict(protected_namespaces=())

    snapshot: str
    model_version: str
    state: Annotated[str, Field(description="writing, ready, held by a gate, or retiring.")]
    active: bool
    published: Annotated[int, Field(description="Entities in the store: scored, and known but rejected.")]
    input_rows: int
    scored: int
    rejected: int
    duplicate: int
    scored_at: str
    data_as_of: str | None
    age_seconds: int
    created_by: str
    bundle_digest: str
    parity: Literal["exact", "tolerance"]


class Snapshots(BaseModel):
    model: str
    source: Annotated[
        Literal["store", "file"], Field(description="file: this service has no store, and serves a snapshot's file.")
    ]
    active: str | None
    snapshots: list[Snapshot]


class Card(BaseModel):
    """The contract of the model that is loaded."""

    model_config = ConfigDict(protected_namespaces=())

    model: str
    model_version: str
    bundle_digest: str
    golden_digest: str
    entity: str
    features: Annotated[list[dict[str, Any]], Field(description="In the schema's order, each with its rules.")]
    inputs: Annotated[
        list[dict[str, Any]], Field(description="The graph's input tensors: name, shape of a row, dtype.")
    ]
    outputs: Annotated[
        list[dict[str, Any]], Field(description="With their class mapping and the names of their scores.")
    ]
    engine: str
    tile: dict[str, Any]
    device: str
    torch_version: str
    created_at: str
    code_revision: str | None


class Readiness(BaseModel):
    """Whether this process answers score calls."""

    status: Literal["ready", "degraded", "loading", "failed", "stopping"]
    reason: str | None = None
    checks: Annotated[dict[str, Any] | None, Field(description="Only with ?verbose.")] = None


Responses = dict[int | str, dict[str, Any]]
NO_HEADERS: Mapping[str, Any] = MappingProxyType({})

_NOT_MODIFIED = "The answer that the caller has still holds; `Age` says how old it is now."
_WORDS = {
    400: "The body is not as described here.",
    404: "There is neither a score nor features of that entity.",
    409: "Not possible as this service is set up, or in that snapshot's state.",
    401: "The key is missing, unknown or expired: the same answer for all three.",
    403: "The key has not the scope that this needs.",
    408: "The head or the body did not arrive in time.",
    413: "More bytes or items than the limits allow.",
    415: "The body is compressed, or coded in another way.",
    429: "More rows in a time than the limits allow.",
    431: "The head of the request has more bytes than the limit.",
    422: "An id that cannot be, or features that break a rule: `code` and `field` say which.",
    503: "Not just now: the process is loading, or the store does not answer. See Retry-After.",
    504: "No answer within the deadline, or none in the cache where the request wants nothing else.",
}


def _header(description: str, kind: str = "string", *, always: bool = True) -> dict[str, Any]:
    return {"description": description, "required": always, "schema": {"type": kind}}


_EACH = {
    "X-Request-Id": _header("Names the request; the log has it under the same id."),
    "Server-Timing": _header("Milliseconds of each stage that the request came to.", always=False),
}
"""The headers of every response."""
UNCACHED: dict[str, Any] = {"Cache-Control": _header("`no-store`.")}
CACHED: dict[str, Any] = {
    "Age": _header("Seconds since the score was computed; not there for one computed now.", "integer", always=False),
    "Cache-Control": _header("`private, no-cache`: a copy may be kept, and is asked about before it is used."),
    "Cache-Status": _header(
        "Where the answer comes from (RFC 9211): `forescore; hit`, "
        "`forescore; hit; detail=snapshot-file` while the store cannot tell, `forescore; fwd=miss; stored`."
    ),
    "ETag": _header("A strong tag of all that the answer says but its age."),
}
_CHALLENGE: dict[str, Any] = {"WWW-Authenticate": _header("`Bearer`.")}
_RATE: dict[str, Any] = {
    "RateLimit-Policy": _header("Every limit, with its rows (`q`) and seconds (`w`)."),
    "RateLimit": _header(
        "The limit that is reached: rows that are left (`r`), and seconds until there are more (`t`)."
    ),
    "Retry-After": _header(
        "Seconds until so many rows are allowed; not there if they never are.", "integer", always=False
    ),
}
_ALWAYS = (401, 403, 429, 431, 503)
"""Refusals that any route may answer with before it looks at the request; ``_WITH_BODY`` where it has a body."""
_WITH_BODY = (408, 415)
SCHEMES: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer KEY`."},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_LATER: dict[str, Any] = {"Retry-After": _header("Seconds until another try may help.", "integer")}


_SAID: dict[int, dict[str, Any]] = {401: _CHALLENGE, 429: _RATE, 503: _LATER}


def responses(model: type[BaseModel] | None, *problems: int, headers: Mapping[str, Any] = NO_HEADERS) -> Responses:
    """What a route may answer with: ``model`` with 200 and its headers, problems, and 304 without a body."""
    good: Responses = {} if model is None else {HTTPStatus.OK.value: {"model": model, "headers": {**headers}}}
    return good | {status: _refusal(status, headers) for status in problems}


def not_ready(description: str) -> dict[str, Any]:
    """A probe's answer of a process that is not ready."""
    return {"description": description, "headers": {**_LATER}}


def _refusal(status: int, headers: Mapping[str, Any]) -> dict[str, Any]:
    if status == HTTPStatus.NOT_MODIFIED:
        return {"description": _NOT_MODIFIED, "headers": {**headers}}
    return {"model": Problem, "description": _WORDS[status], "headers": UNCACHED | _SAID.get(status, {})}


def json_body(model: str) -> dict[str, Any]:
    """The part of a route's description for a body that the route itself reads."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}
    return {"requestBody": {"required": True, "content": content}}


def path_id() -> dict[str, Any]:
    """The part of a route's description for an entity id in the path."""
    return {
        "name": "entity_id",
        "in": "path",
        "required": True,
        "description": "Percent-encoded UTF-8; `/` in an id is written `%2F`.",
        "schema": {"type": "string"},
    }


def query(name: str, description: str) -> dict[str, Any]:
    """The part of a route's description for an option in the query."""
    return {"name": name, "in": "query", "required": False, "description": description, "schema": {"type": "string"}}


def header(name: str, description: str) -> dict[str, Any]:
    """The part of a route's description for a request header that it heeds."""
    return query(name, description) | {"in": "header"}


def install(app: FastAPI) -> None:
    """Gives the application its OpenAPI document, made when it is first asked for."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign] # the way that FastAPI documents


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    document["components"]["securitySchemes"] = SCHEMES
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _guard(path, operation)
            for status, response in operation["responses"].items():
                response["headers"] = response.get("headers", {}) | _EACH
                if int(status) >= 400 and "content" in response:  # noqa: PLR2004 - where HTTP's errors begin
                    response["content"] = {MEDIA_TYPE: response["content"]["application/json"]}
    schemas = document["components"]["schemas"]
    for model in (Items, Features):
        described = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(described.pop("$defs", {}))
        schemas[model.__name__] = described
    return document


def _guard(path: str, operation: dict[str, Any]) -> None:
    """Which scope it needs where keys are asked for, and how it refuses. Probes ask nobody."""
    access = door_of({"type": "http", "path": path, "query_string": b""}).access
    if access is None:
        return
    operation["security"] = [{}, *({scheme: [access.value]} for scheme in SCHEMES)]
    for status in (*_ALWAYS, *(_WITH_BODY if "requestBody" in operation else ())):
        refusal = _refusal(status, NO_HEADERS)
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{refusal.pop('model').__name__}"}}}
        operation["responses"].setdefault(str(status), refusal | {"content": content})
    operation["responses"] = dict(sorted(operation["responses"].items()))


def main() -> None:
    """Prints the document, as docs/openapi.json has it."""
    from service.app import create_app  # noqa: PLC0415 - the application is made from this module
    from shared.settings import Settings  # noqa: PLC0415 - the same

    sys.stdout.write(json.dumps(create_app(Settings()).openapi(), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
