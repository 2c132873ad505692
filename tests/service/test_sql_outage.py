import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing

import pytest
from support.databases import ROWS, SCHEMA, Row, Sqlite, ask, eventually, read
from support.postgres import PostgresProcess
from support.proxy import proxy_to
from support.publish import publish
from support.servers import dead_port, hung_server, wait_until
from support.services import service_settings, serving

from service.sql import SqlFeatures, open_sql
from shared.errors import SourceDown
from shared.scorer import Scorer
from shared.settings import FeatureSettings
from shared.testing.store import MemoryStore


def test_a_file_is_read_while_it_is_written(sqlite: Sqlite) -> None:
    """With a write-ahead log readers do not wait for the writer, and see what is committed."""
    sqlite.run("pragma journal_mode = wal", "create table t (id text, x integer, c text)", ROWS)
    with closing(sqlite3.connect(sqlite.path)) as writer:
        writer.execute("update t set x = 9")
        assert read(sqlite.url("t"), "a") == {"a": {"x": 1, "c": "u"}}


def test_a_locked_file_costs_its_own_time_only(sqlite: Sqlite) -> None:
    """Somebody who holds the file exclusively makes the source fail in time, and not for longer than he holds it."""
    sqlite.run("create table t (id text, x integer, c text)", ROWS)

    async def story(source: SqlFeatures) -> Mapping[str, Row | None]:
        with closing(sqlite3.connect(sqlite.path, isolation_level=None)) as holder:
            holder.execute("begin exclusive")
            with pytest.raises(SourceDown, match="did not answer"):
                await source.read(["a"])
            holder.execute("rollback")
        return await eventually(source, ["a"])

    assert ask(sqlite.url("t"), story, timeout_ms=100) == {"a": {"x": 1, "c": "u"}}


@pytest.mark.parametrize("where", ["connect", "query"])
def test_a_hung_server_costs_its_own_time_only(postgres: PostgresProcess, where: str) -> None:
    """Whatever the driver does, the question ends in time; it is answered as soon as the server answers again."""
    postgres.run("create table t (id text, x integer, c text)", ROWS)

    async def story() -> tuple[float, Mapping[str, Row | None]]:
        async with proxy_to(postgres.port) as proxy:
            url = postgres.url("t").replace(f":{postgres.port}/", f":{proxy.port}/")
            source = open_sql(url, SCHEMA, FeatureSettings(timeout_ms=300, pool_size=2))
            if where == "query":
                await source.read([])
            proxy.gate.clear()
            start = asyncio.get_running_loop().time()
            failures = await asyncio.gather(*(source.read(["a"]) for _ in range(8)), return_exceptions=True)
            spent = asyncio.get_running_loop().time() - start
            assert {type(failure) for failure in failures} == {SourceDown}
            proxy.gate.set()
            found = await eventually(source, ["a"])
            await source.close()
            return spent, found

    spent, found = asyncio.run(story())

    assert spent < 1.5
    assert found == {"a": {"x": 1, "c": "u"}}


def test_connections_are_bounded(postgres: PostgresProcess) -> None:
    """A crowd of questions waits for the pool's connections and opens no others."""
    postgres.run("create table t (id text, x integer, c text)", ROWS)

    async def story() -> int:
        async with proxy_to(postgres.port) as proxy:
            url = postgres.url("t").replace(f":{postgres.port}/", f":{proxy.port}/")
            source = open_sql(url, SCHEMA, FeatureSettings(timeout_ms=10_000, pool_size=2))
            answers = await asyncio.gather(*(source.read(["a"]) for _ in range(50)))
            assert all(answer == {"a": {"x": 1, "c": "u"}} for answer in answers)
            await source.close()
            return proxy.connections

    assert asyncio.run(story()) == 2


def test_a_restarted_server_costs_no_question(postgres: PostgresProcess) -> None:
    """Connections from before the restart are dead: the question is put again over a new one."""
    postgres.run("create table t (id text, x integer, c text)", ROWS)

    async def story(source: SqlFeatures) -> Mapping[str, Row | None]:
        await source.read(["a"])
        await asyncio.to_thread(postgres.stop)
        assert await asyncio.to_thread(postgres.start)
        return await source.read(["a"])

    assert ask(postgres.url("t"), story) == {"a": {"x": 1, "c": "u"}}


def test_a_cancelled_question_harms_nobody(postgres: PostgresProcess) -> None:
    """The caller who goes away ends his query, and the pool serves on."""
    postgres.run(
        "create table t (id text, x integer, c text)", ROWS, "create view slow as select t.* from t, pg_sleep(30)"
    )

    async def story(source: SqlFeatures) -> Mapping[str, Row | None]:
        await source.read([])
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await source.read(["a"])
        await asyncio.to_thread(postgres.run, "create or replace view slow as select t.* from t")
        return await eventually(source, ["a"])

    assert ask(postgres.url("slow"), story, pool_size=1) == {"a": {"x": 1, "c": "u"}}


def _down(kind: str) -> str:
    return f"postgresql://u:p@127.0.0.1:{dead_port()}/d?table=t" if kind == "dead" else ""


def test_a_dead_server_is_told_at_once() -> None:
    """Refused is refused: no time is spent."""
    with pytest.raises(SourceDown, match=r"cannot be reached \(ECONNREFUSED\)"):
        read(_down("dead"), "a")


def test_a_server_that_hangs_from_the_start_is_told_in_time() -> None:
    """It takes connections and never says a word."""
    with hung_server() as port, pytest.raises(SourceDown, match=r"did not answer within 0\.1 s"):
        read(f"postgresql://u:p@127.0.0.1:{port}/d?table=t", "a", timeout_ms=100)


def test_the_service_starts_without_its_database_and_finds_it_later(
    scorer: Scorer, memory: MemoryStore, postgres: PostgresProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ready and degraded while it is down, 503 for who needs it, and whole again without a restart."""
    monkeypatch.setattr("service.lifespan.RECHECK_SECONDS", 0.05)
    postgres.run(
        "create table customers (customer_id text, visits integer, returns integer, basket integer)",
        "insert into customers values ('new', 1, 0, 2)",
    )
    publish(memory.store, scorer, {"a": {"visits": 0, "returns": 3, "basket": 1}})
    settings = service_settings(scorer, features=f"store,{postgres.url('customers')}")
    postgres.stop()
    with serving(scorer, memory, settings) as client:
        body = client.get("/readyz?verbose").json()
        found = {name: one["status"] for name, one in body["checks"]["features"].items()}
        assert (body["status"], found) == ("degraded", {"store": "ok", "sql:customers": "failing"})
        assert client.get("/score/a").status_code == 200
        assert client.get("/score/new").status_code == 503
        assert postgres.start()
        wait_until(lambda: client.get("/readyz").json()["status"] == "ready")
        answer = client.get("/score/new")
        assert (answer.json()["source"], answer.json()["scores"]) == ("online", {"buys": 0.8581489})
        assert client.get("/score/nobody").status_code == 404


def test_a_database_that_fails_gives_way_to_the_next(scorer: Scorer, memory: MemoryStore, sqlite: Sqlite) -> None:
    """Sources are asked in their order, and one that is dead only costs its own answers."""
    sqlite.run(
        "create table customers (customer_id text, visits integer, returns integer, basket integer)",
        "insert into customers values ('new', 1, 0, 2)",
    )
    url = f"{_down('dead')},{sqlite.url('customers').replace(',', '%2C')}"
    with serving(scorer, memory, service_settings(scorer, features=url)) as client:
        assert client.get("/score/new").json()["scores"] == {"buys": 0.8581489}
        assert client.get("/score/nobody").status_code == 503


def test_a_table_without_a_feature_keeps_the_service_from_starting(
    scorer: Scorer, memory: MemoryStore, sqlite: Sqlite
) -> None:
    """That is a mistake, not an outage: waiting would not mend it."""
    sqlite.run("create table customers (customer_id text, visits integer, returns integer)")
    settings = service_settings(scorer, features=sqlite.url("customers").replace(",", "%2C"))
    with pytest.raises(AssertionError, match="has no column 'basket'"), serving(scorer, memory, settings):
        pass
