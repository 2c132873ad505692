import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.databases import Database, Sqlite
from support.postgres import PostgresProcess, start_postgres

from shared.bundle import Bundle
from shared.scorer import Scorer, open_scorer
from shared.settings import Settings
from shared.telemetry import configure_logging
from shared.testing.bundles import every_feature_bundle, purchase_bundle
from shared.testing.store import MemoryStore

V1 = (0.8, -0.4, 0.6)
V2 = (-0.5, 0.2, 0.1)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The purchase model, version 1."""
    return purchase_bundle(tmp_path_factory.mktemp("bundles") / "v1", weights=V1)


@pytest.fixture(scope="session")
def scorer(bundle: Bundle) -> Scorer:
    return open_scorer(bundle, device="cpu")


@pytest.fixture(scope="session")
def scorer2(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    """The purchase model, version 2, with other weights: its scores cannot be taken for those of version 1."""
    return open_scorer(
        purchase_bundle(tmp_path_factory.mktemp("bundles") / "v2", version="2", weights=V2), device="cpu"
    )


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore("purchase")


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    """A model of every kind of feature and output."""
    return open_scorer(every_feature_bundle(tmp_path_factory.mktemp("bundles") / "everything"), device="cpu")


@pytest.fixture(autouse=True)
def log() -> io.StringIO:
    """What this process logs, as JSON lines."""
    stream = io.StringIO()
    configure_logging(Settings(log_format="json", log_level="debug"), stream)
    return stream


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresProcess]:
    with start_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresProcess) -> PostgresProcess:
    """The server with an empty schema."""
    drops = ("drop schema if exists other cascade", "drop schema public cascade")
    postgres_server.run(*drops, "create schema public")
    return postgres_server


@pytest.fixture
def sqlite(tmp_path: Path) -> Sqlite:
    return Sqlite(tmp_path / "with space, and comma.db")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found
