import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr

from service.features import FeatureSource, StoreFeatures
from service.parquet import ParquetFeatures
from service.sources import open_sources
from service.sql import SqlFeatures
from shared.errors import SchemaError, SettingsError, TableNotFound
from shared.settings import FeatureSettings
from shared.testing.bundles import purchase_schema
from shared.testing.store import MemoryStore

OWN = """
    closed = []

    class Mine:
        name = "mine"

        async def read(self, ids):
            return {}

        async def close(self):
            closed.append(self)

    class Half:
        name = "half"

        def read(self, ids):
            return {}

    def open_source(schema, settings):
        assert (schema.entity, settings.timeout_ms) == ("customer_id", 200)
        return Mine()

    async def open_later(schema, settings):
        return Mine()

    def half(schema, settings):
        return Half()

    def failing(schema, settings):
        raise OSError("hunter2")

    def refusing(schema, settings):
        from shared.errors import SchemaError

        raise SchemaError("no such feature")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's module, of a name that no other test has."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    return name


def opened(url: str) -> Sequence[FeatureSource]:
    settings = FeatureSettings(url=SecretStr(url))
    return asyncio.run(open_sources(settings, MemoryStore("purchase").async_store, purchase_schema()))


def table(path: Path) -> Path:
    pq.write_table(pa.table({name: [1] for name in ("customer_id", "visits", "returns", "basket")}), path)
    return path


def test_sources_come_in_the_order_of_the_setting(tmp_path: Path, own: str) -> None:
    """Each kind is told by its form; blanks and empty places are nothing."""
    url = (
        f"postgresql://h/d?table=t , {table(tmp_path / 'f.parquet')},,{own}:open_source,store,none,sqlite:///x?table=u"
    )
    found = opened(url)

    assert [source.name for source in found] == ["sql:t", "parquet", "mine", "store", "sql:u"]
    kinds = [type(source) for source in found]
    assert [kind for kind in kinds if kind.__name__ != "Mine"] == [
        SqlFeatures,
        ParquetFeatures,
        StoreFeatures,
        SqlFeatures,
    ]


@pytest.mark.parametrize("url", ["none", "", ","])
def test_there_may_be_none(url: str) -> None:
    """Then only what the batch has scored is answered."""
    assert opened(url) == []


def test_a_source_of_ones_own_may_be_opened_by_a_coroutine(own: str) -> None:
    """A function may be ``async``: it can connect before it returns."""
    assert [source.name for source in opened(f"{own}:open_later")] == ["mine"]


def test_where_one_cannot_be_opened_the_others_are_closed(own: str, tmp_path: Path) -> None:
    """Nothing stays open behind an error."""
    with pytest.raises(TableNotFound):
        opened(f"{own}:open_source,{own}:open_later,{tmp_path / 'nothing.parquet'}")

    assert len(sys.modules[own].closed) == 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "has no function nothing"),
        ("closed", "has no function closed"),
        ("half", "returned Half, which is no source: it needs"),
        ("failing", "raised OSError; call it in Python"),
    ],
)
def test_what_is_no_source_is_told(own: str, function: str, message: str) -> None:
    """The setting's mistake is named; what an exception of the user's says is not repeated."""
    with pytest.raises(SettingsError, match=message) as caught:
        opened(f"{own}:{function}")
    assert "hunter2" not in str(caught.value)


def test_an_error_of_ours_is_passed_on(own: str) -> None:
    """A source may raise what says it best."""
    with pytest.raises(SchemaError, match="no such feature"):
        opened(f"{own}:refusing")


def test_a_module_that_is_not_there_is_told() -> None:
    """With the places that were looked at."""
    with pytest.raises(SettingsError, match="there is no module no_such_module"):
        opened("no_such_module:open_source")


def test_a_url_of_another_kind_is_refused() -> None:
    """Its scheme is named, and nothing else of it."""
    with pytest.raises(SettingsError, match="mysql:// is no source of features") as caught:
        opened("mysql://u:hunter2@h/d?table=t")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("package", "url"), [("sqlalchemy", "sqlite:///x?table=t"), ("asyncpg", "postgresql://h/d?table=t")]
)
def test_a_package_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch, package: str, url: str) -> None:
    """An install without the extra says what to install."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package or name.startswith("service.sql")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingsError, match=rf"an SQL source needs {package}.*: pip install 'forescore\[sql\]'"):
        opened(url)
