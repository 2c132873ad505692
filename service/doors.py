"""Which path needs which scope. What is not listed needs ``admin``: a new route is closed until it is opened here."""

from typing import NamedTuple

from starlette.datastructures import QueryParams
from starlette.types import Scope

from service.keys import Access

NO_ROUTE = "(none)"
_PROBES = frozenset({"/livez", "/readyz", "/healthz"})
_READABLE = frozenset({"/", "/score", "/model", "/snapshots", "/docs", "/redoc", "/openapi.json"})
_DOCS_FILES = "/docs/files/"
_SCORE = "/score/"
_FEATURES = "/features/"


class Door(NamedTuple):
    """``access`` is None where anybody may. What is not ``limited`` counts for no limit. ``route`` is for the log."""

    access: Access | None
    route: str
    limited: bool = True


_ONE = Door(Access.READ, "/score/{entity_id}")
_FEATURE = Door(Access.WRITE, "/features/{entity_id}")
_ELSEWHERE = Door(Access.ADMIN, NO_ROUTE)
_METRICS = Door(Access.ADMIN, "/metrics", limited=False)
_OPEN_METRICS = Door(None, "/metrics", limited=False)
_DOORS = (
    {path: Door(Access.READ, path) for path in _READABLE}
    | {path: Door(None, path, limited=False) for path in _PROBES}
    | {"/metrics": _METRICS}
)


def door_of(scope: Scope, *, open_metrics: bool = False) -> Door:
    """By the decoded path, as the router goes by it."""
    path: str = scope["path"]
    if root := scope.get("root_path"):
        path = path.removeprefix(root)
    if path.startswith(_SCORE):
        return _ONE
    door = _DOORS.get(path)
    if door is None:
        return _behind(path)
    if door is _METRICS and open_metrics:
        return _OPEN_METRICS
    if path == "/readyz" and scope["query_string"] and "verbose" in QueryParams(scope["query_string"]):
        return Door(Access.ADMIN, path, limited=False)
    return door


def _behind(path: str) -> Door:
    if path.startswith(_FEATURES):
        return _FEATURE
    return Door(Access.READ, "/docs") if path.startswith(_DOCS_FILES) else _ELSEWHERE
