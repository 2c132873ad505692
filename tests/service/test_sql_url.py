import asyncio
import io
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from support.databases import ROWS, SCHEMA, read
from support.postgres import PASSWORD, PostgresProcess

from service.features import FeatureChain
from service.sql import open_sql
from shared.errors import SettingsError, SourceDown, TableNotFound
from shared.metrics import Metrics
from shared.settings import FeatureSettings


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A name mistyped must not become an empty database that knows nobody."""
    with pytest.raises(TableNotFound, match="four slashes"):
        read(f"sqlite:///{tmp_path / 'nothing.db'}?table=t")
    assert list(tmp_path.iterdir()) == []


def test_the_password_is_never_told(postgres: PostgresProcess, log: io.StringIO) -> None:
    """Not by the settings, nor by an error, nor by what the service logs of it."""
    wrong = "hunter2/%:,"
    secret = SecretStr(postgres.url("t", password=wrong))
    settings = FeatureSettings(url=secret)
    source = open_sql(secret.get_secret_value(), SCHEMA, settings)

    async def story() -> str:
        chain = FeatureChain([source], 5, Metrics(CollectorRegistry()))
        await chain.check()
        with pytest.raises(SourceDown) as caught:
            await source.read(["a"])
        await chain.close()
        return str(caught.value)

    told = asyncio.run(story())

    assert "InvalidPasswordError" in told
    for text in (told, log.getvalue(), repr(settings), repr(source._engine), repr(source._address)):
        assert "hunter2" not in text
        assert PASSWORD not in text


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://?table=t", "name the file"),
        ("sqlite:///:memory:?table=t", "name the file"),
        ("sqlite:///x.db", r"\?table="),
        ("sqlite:///x.db?table=t&secret=1", "option of the SQL URL is not known"),
        ("postgresql://u:hunter2@h/d?table=t&secret=1", "known are table, entity_column, host"),
        ("postgresql://u:hunter2@h:port/d?table=t", "percent-encode"),
        ("postgresql+psycopg2://u:hunter2@h/d?table=t", "percent-encode"),
    ],
)
def test_a_url_that_cannot_be_is_refused_and_not_repeated(url: str, message: str) -> None:
    """The setting is named, and the form that it must have."""
    with pytest.raises(SettingsError, match=message) as caught:
        open_sql(url, SCHEMA, FeatureSettings())
    assert str(caught.value).startswith("FORESCORE_FEATURES__URL")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_a_server_may_be_named_by_any_of_its_schemes(postgres: PostgresProcess, scheme: str) -> None:
    """What other tools take is taken, libpq's sslmode with it."""
    postgres.run("create table t (id text, x integer, c text)", ROWS)
    url = postgres.url("t").replace("postgresql://", f"{scheme}://") + "&sslmode=disable"

    assert read(url, "a") == {"a": {"x": 1, "c": "u"}}
