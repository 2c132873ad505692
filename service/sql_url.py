"""The URL of an SQL source: which database, which table, which column of ids."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from shared.errors import SettingsError
from shared.settings import FeatureSettings

SCHEMES = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
"""The scheme of a URL -> the driver that reads it."""

_SETTING = "FORESCORE_FEATURES__URL"
_POSTGRESQL_OPTIONS = frozenset({"host", "ssl", "sslmode", "prepared_statement_cache_size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlAddress:
    """A parsed URL. ``where`` names the database in messages, without user and password; ``url`` is the driver's.

    ``file`` is the database of SQLite, None for a server's. ``schema`` is that of the table, None for the default one.
    """

    url: URL = field(repr=False)
    where: str
    file: Path | None
    schema: str | None
    table: str
    entity: str


def parse_sql_url(text: str, settings: FeatureSettings, entity: str) -> SqlAddress:
    """Reads the URL; SettingsError says which rule it breaks, and never repeats it: it may hold a password."""
    try:
        url = make_url(text)
        driver = SCHEMES[url.drivername]
    except (ArgumentError, ValueError, KeyError):
        raise SettingsError(
            f"{_SETTING}: an SQL source is sqlite:///path?table=T or postgresql://user@host/database?table=T; "
            "percent-encode what is special in a name or a password"
        ) from None
    query = {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}
    schema, _, table = _table(query, settings).rpartition(".")
    column = query.pop("entity_column", None) or settings.sql_entity_column or entity
    database = unquote(url.database or "")
    if driver.startswith("sqlite"):
        url, where = _sqlite(database, query), database
    else:
        url = url.set(drivername=driver, database=database or None, query=_postgresql_options(query))
        where = f"{url.host or query.get('host', 'localhost')}:{url.port or 5432}/{database}"
    file = Path(database) if driver.startswith("sqlite") else None
    return SqlAddress(url=url, where=where, file=file, schema=schema or None, table=table, entity=column)


def _table(query: dict[str, str], settings: FeatureSettings) -> str:
    table = query.pop("table", None) or settings.sql_table
    if not table:
        raise SettingsError(f"{_SETTING}: name the table, as in ?table=customers, or set FORESCORE_FEATURES__SQL_TABLE")
    return table


def _sqlite(database: str, query: Mapping[str, str]) -> URL:
    """Opened for reading only, so that a name mistyped does not make an empty database."""
    if not database or database == ":memory:":
        raise SettingsError(f"{_SETTING}: name the file, as in sqlite:///customers.db or sqlite:////data/customers.db")
    _require_known(query, frozenset())
    return URL.create(SCHEMES["sqlite"], database=f"file:{quote(database)}", query={"mode": "ro", "uri": "true"})


def _postgresql_options(query: Mapping[str, str]) -> Mapping[str, Any]:
    _require_known(query, _POSTGRESQL_OPTIONS)
    return {"ssl" if name == "sslmode" else name: value for name, value in query.items()}


def _require_known(query: Mapping[str, str], known: frozenset[str]) -> None:
    if not query.keys() <= known:
        names = ", ".join(("table", "entity_column", *sorted(known)))
        raise SettingsError(f"{_SETTING}: an option of the SQL URL is not known; known are {names}")
