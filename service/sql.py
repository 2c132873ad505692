"""Features from a table or a view of a database, through SQLAlchemy.

A question has a limit in time that no driver can exceed: it runs in a task of its own, which nobody waits for once its
time is over. Nothing is written, and no error repeats a value or what the URL says beyond the database's name.
"""

import asyncio
import errno
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from sqlalchemy import ColumnClause, bindparam, column, event, inspect, select
from sqlalchemy import table as table_clause
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.sql import Select

from service.sql_ids import IdKind, id_kind
from service.sql_url import SqlAddress, parse_sql_url
from shared.errors import ColumnMissing, ForescoreError, SourceDown, SourceError, TableNotFound
from shared.schema import Schema
from shared.settings import FeatureSettings
from shared.telemetry import Logger

Row = Mapping[str, object]
T = TypeVar("T")

MAX_BINDS = 8192
"""Ids of one query; drivers know a limit of about 32,000."""
MAX_REPEATS = 256
"""Rows of one query beyond one for each id: more, and the table is one of events."""
CONNECT_SECONDS = 5.0
"""The limit of a first connection, made while nobody waits for it."""

_SESSION = {"server_settings": {"application_name": "forescore"}}

_log: Logger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The table as it was found: the query for ids, and the kind of these."""

    query: Select[Any]
    ids: IdKind


class SqlFeatures:
    """``service.features.FeatureSource`` on one table: one query for many ids, a bounded number of connections."""

    def __init__(self, engine: AsyncEngine, address: SqlAddress, features: tuple[str, ...], seconds: float) -> None:
        self.name = f"sql:{address.table}"
        self._engine = engine
        self._address = address
        self._features = features
        self._seconds = seconds
        self._table: _Table | None = None
        self._late: set[asyncio.Task[Any]] = set()

    async def read(self, ids: Sequence[str]) -> Mapping[str, Row | None]:
        """The rows of the ids, None for one that has several. No ids: looks at the table anew.

        Raises: SourceDown; TableNotFound, ColumnMissing, ColumnRefused where the table is not as the schema needs it.
        """
        if not ids:
            await self._within(self._guarded(self._look()), max(self._seconds, CONNECT_SECONDS))
            return {}
        return await self._within(self._guarded(self._read(ids)), self._seconds)

    async def close(self) -> None:
        """Ends every connection; one that hangs is left behind."""
        if self._late:
            await asyncio.wait(self._late, timeout=self._seconds)
        with suppress(SourceDown):
            await self._within(self._guarded(self._engine.dispose()), self._seconds)

    async def _read(self, ids: Sequence[str]) -> dict[str, Row | None]:
        table = self._table or await self._look()
        bound = {entity: value for entity in ids if (value := table.ids.bind(entity)) is not None}
        found: dict[str, Row | None] = {}
        for slab in _slabs(bound, MAX_BINDS):
            rows = await self._ask(table, [bound[entity] for entity in slab])
            found |= self._by_entity(table, frozenset(slab), rows)
        return found

    async def _ask(self, table: _Table, values: list[object]) -> Sequence[Sequence[object]]:
        limit = len(values) + MAX_REPEATS
        padded = values + values[-1:] * (
            _size(len(values)) - len(values)
        )  # few texts of one query: drivers prepare each
        try:
            rows = await self._execute(table.query.limit(limit), padded)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            rows = await self._execute(table.query.limit(limit), padded)  # the server was restarted: connect anew
        if len(rows) == limit:
            raise SourceError(f"features: {self._told()} has many rows of one id; name a view with one row of each")
        return rows

    async def _execute(self, query: Select[Any], values: list[object]) -> Sequence[Sequence[object]]:
        async with self._engine.connect() as connection:
            found: Sequence[Sequence[object]] = (await connection.execute(query, {"ids": values})).all()
            return found

    def _by_entity(
        self, table: _Table, asked: frozenset[str], rows: Iterable[Sequence[object]]
    ) -> dict[str, Row | None]:
        """The rows by id as it is written; a collation may have found more than what was asked for."""
        found: dict[str, Row | None] = {}
        for key, *values in rows:
            entity = table.ids.text(key)
            if not isinstance(entity, str) or entity not in asked:
                continue
            if entity in found:
                _log.warning("several rows of one id", source=self.name, entity_id=entity)
            found[entity] = None if entity in found else dict(zip(self._features, values, strict=True))
        return found

    async def _look(self) -> _Table:
        """Finds the table and proves that it has what the schema needs."""
        address, wanted = self._address, [self._address.entity, *self._features]
        if address.file is not None and not await asyncio.to_thread(address.file.is_file):
            raise TableNotFound(
                f"features: {address.where} is not a file; an absolute path has four slashes: sqlite:////"
            )
        async with self._engine.connect() as connection:
            kinds = await connection.run_sync(_columns, address)
        if kinds is None:
            raise TableNotFound(f"features: {address.where} has no table {address.table}")
        missing = [name for name in wanted if name not in kinds]
        if missing:
            raise ColumnMissing(f"features: {self._told()} has no column {missing[0]!r}; add it, or name another table")
        kind = kinds[address.entity]
        ids = id_kind(kind, address.entity, dialect=self._engine.dialect.name)
        key = column(address.entity, kind)
        rest: list[ColumnClause[Any]] = [column(name) for name in self._features]
        source = table_clause(address.table, key, *rest, schema=address.schema)
        asked = key.in_(bindparam("ids", type_=kind, expanding=True))
        self._table = _Table(query=select(key, *rest).select_from(source).where(asked), ids=ids)
        return self._table

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """What a driver says may hold ids, values and passwords: only its kind is kept."""
        try:
            return await work
        except ForescoreError:
            self._table = None  # it may be mended: the next question looks again
            raise
        except Exception as error:  # noqa: BLE001 - drivers raise errors of their own, and Python's
            self._table = None
            raise SourceDown(f"features: {self._told()} {_reason(error)}; check FORESCORE_FEATURES__URL") from None

    async def _within(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Waits so long and no longer, whatever the driver does when it is cancelled.

        SQLite's work is in a thread, which no cancellation ends: it comes back after the ``timeout`` of the connection.
        """
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._forget)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done() and self._address.file is None:
                task.cancel()
        if not done:
            raise SourceDown(f"features: {self._told()} did not answer within {seconds:g} s")
        return task.result()

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain of one that nobody waited for

    def _told(self) -> str:
        return f"table {self._address.table} of {self._address.where}"


def open_sql(url: str, schema: Schema, settings: FeatureSettings) -> SqlFeatures:
    """The source of a URL; nothing is connected before it is asked.

    SettingsError says what is wrong with the URL, ModuleNotFoundError which driver is not installed.
    """
    address = parse_sql_url(url, settings, schema.entity)
    seconds = settings.timeout_ms / 1000
    sqlite = address.file is not None
    engine = create_async_engine(
        address.url,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=settings.pool_size,
        max_overflow=0,
        pool_timeout=seconds,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        connect_args={"timeout": seconds} if sqlite else {"timeout": CONNECT_SECONDS, **_SESSION},
    )
    if sqlite:
        event.listen(engine.sync_engine, "connect", _lenient_text)
    return SqlFeatures(engine, address, tuple(feature.name for feature in schema.features), seconds)


def _columns(connection: Connection, address: SqlAddress) -> dict[str, Any] | None:
    """The columns of a table or a view with their types; None if there is no such table."""
    try:
        found = inspect(connection).get_columns(address.table, schema=address.schema)
    except NoSuchTableError:
        return None
    return {each["name"]: each["type"] for each in found}


def _lenient_text(connection: Any, _record: object) -> None:
    """Text that is not UTF-8 comes as bytes, which no feature takes: it costs its row, and not the whole answer."""
    connection.driver_connection.text_factory = _text


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _slabs(ids: Mapping[str, object], size: int) -> Iterator[list[str]]:
    names = list(ids)
    return (names[start : start + size] for start in range(0, len(names), size))


def _size(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()


def _reason(error: Exception) -> str:
    """The kind of failure, in words for the most frequent ones."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    cause = getattr(cause, "__cause__", None) or cause
    if isinstance(cause, TimeoutError):
        return "did not answer in time"
    if isinstance(cause, OSError):
        return f"cannot be reached ({errno.errorcode.get(cause.errno or 0, type(cause).__name__)})"
    return f"cannot be asked ({getattr(cause, 'sqlite_errorname', None) or type(cause).__name__})"
