"""Databases for tests of the SQL sources: SQLite in a file, PostgreSQL as a real server."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, TypeVar

from service.sql import SqlFeatures, open_sql
from shared.errors import SourceDown
from shared.schema import Binary, Categorical, Numeric, Schema
from shared.settings import FeatureSettings

T = TypeVar("T")
Row = Mapping[str, object]
SCHEMA = Schema(
    entity="id",
    features=(Numeric("x", missing="mean"), Categorical("c", vocabulary=("u", "v"))),
    outputs=(Binary("y"),),
)
ROWS = "insert into t values ('a', 1, 'u'), ('b', 2, 'v'), ('007', 3, 'u'), ('7', 4, null)"


class Database(Protocol):
    def url(self, table: str) -> str: ...

    def run(self, *statements: str) -> None: ...


class Sqlite:
    """A database in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def url(self, table: str) -> str:
        return f"sqlite:///{self.path}?table={table}"

    def run(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)


def ask(url: str, question: Callable[[SqlFeatures], Awaitable[T]], *, schema: Schema = SCHEMA, **settings: Any) -> T:
    """Opens the source, asks, and closes it."""

    async def story() -> T:
        source = open_sql(url, schema, FeatureSettings(**{"timeout_ms": 5000, **settings}))
        try:
            return await question(source)
        finally:
            await source.close()

    return asyncio.run(story())


def read(url: str, *ids: str, schema: Schema = SCHEMA, **settings: Any) -> Mapping[str, Row | None]:
    return ask(url, lambda source: source.read(ids), schema=schema, **settings)


async def eventually(source: SqlFeatures, ids: Sequence[str]) -> Mapping[str, Row | None]:
    """Asks until the source answers."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await source.read(ids)
            except SourceDown:
                await asyncio.sleep(0)
