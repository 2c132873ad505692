import asyncio
import io
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import event
from support.databases import ROWS, Database, Row, Sqlite, ask, read
from support.postgres import PostgresProcess

from service.sql import MAX_REPEATS, SqlFeatures
from shared.encode import Encoder
from shared.errors import ColumnMissing, ColumnRefused, SourceDown, SourceError, TableNotFound
from shared.fit import fit
from shared.schema import Binary, Boolean, Categorical, Numeric, Schema, Tensor
from shared.settings import FeatureSettings


def statements_of(source: SqlFeatures) -> list[str]:
    """Every statement that the source sends from now on."""
    sent: list[str] = []
    event.listen(source._engine.sync_engine, "before_cursor_execute", lambda *arguments: sent.append(str(arguments[2])))
    return sent


def test_each_entity_has_its_own_row(database: Database) -> None:
    """Ids are exact text; what is not there is unknown; NULL comes as None."""
    database.run("create table t (id text primary key, x integer, c text)", ROWS)

    assert read(database.url("t"), "a", "nobody", "007", "7", "A", "a ") == {
        "a": {"x": 1, "c": "u"},
        "007": {"x": 3, "c": "u"},
        "7": {"x": 4, "c": None},
    }


def test_ids_of_any_writing_are_found_and_never_run(database: Database) -> None:
    """Quotes, signs of the query's own language and letters beyond ASCII are text like any other."""
    ids = ["o'brien", "a,b", "%s", ":x", "$1", "\u00e9", "e\u0301", "x'; drop table t; --", "\\", "\u65e5"]
    values = ", ".join(f"('{entity.replace(chr(39), chr(39) * 2)}', {place}, 'u')" for place, entity in enumerate(ids))
    database.run("create table t (id text primary key, x integer, c text)", f"insert into t values {values}")

    assert read(database.url("t"), *ids) == {entity: {"x": place, "c": "u"} for place, entity in enumerate(ids)}


def test_many_ids_are_one_query_of_the_schemas_columns(database: Database) -> None:
    """A thousand ids make one statement, which reads nothing that the schema does not need."""
    values = ", ".join(f"('E{number}', {number}, 'u', 'private')" for number in range(1000))
    database.run("create table t (id text primary key, x integer, c text, note text)", f"insert into t values {values}")

    async def story(source: SqlFeatures) -> tuple[list[str], Mapping[str, Row | None]]:
        await source.read([])
        sent = statements_of(source)
        return sent, await source.read([f"E{number}" for number in range(2000)])

    sent, found = ask(database.url("t"), story)

    assert len(sent) == 1
    assert "note" not in sent[0]
    assert found == {f"E{number}": {"x": number, "c": "u"} for number in range(1000)}


@pytest.mark.parametrize(("kind", "greatest"), [("smallint", 2**15 - 1), ("integer", 2**31 - 1), ("bigint", 2**63 - 1)])
def test_a_column_of_integers_has_only_their_written_form(database: Database, kind: str, greatest: int) -> None:
    """007 never finds 7, and an id that no integer of the column has is unknown, not a failure."""
    database.run(
        f"create table t (id {kind} primary key, x integer, c text)",
        f"insert into t values (7, 1, 'u'), (-7, 2, 'u'), (0, 3, 'u'), ({greatest}, 4, 'u')",
    )
    others = ["007", "+7", " 7", "7.0", "-0", "00", "\u0667", "7e0", "seven", str(2**63), "9" * 200, str(greatest + 1)]

    assert read(database.url("t"), *others) == {}
    found = read(database.url("t"), "7", "-7", "0", str(greatest), *others)
    assert {entity: row and row["x"] for entity, row in found.items()} == {"7": 1, "-7": 2, "0": 3, str(greatest): 4}


def test_values_are_read_by_the_rules_of_the_schema(database: Database) -> None:
    """Decimals, booleans, texts, JSON and NULL give what the same values give in a table of the batch."""
    schema = Schema(
        entity="id",
        features=(
            Numeric("amount", missing="constant", fill=0.5),
            Boolean("member", missing="indicator"),
            Categorical("plan", vocabulary=("a", "b")),
            Categorical("region", vocabulary=(7, 8)),
            Tensor("vector", shape=(2,), missing="zeros"),
        ),
        outputs=(Binary("y"),),
    )
    database.run(
        "create table t (id text, amount decimal(12, 4), member boolean, "
        "plan varchar(9), region numeric(5, 0), vector text)",
        "insert into t values ('a', 1.3, true, 'b', 7, '[0.5, 1]'), ('b', null, null, null, null, null)",
    )
    found = read(database.url("t"), "a", "b", schema=schema)
    batch = pa.table(
        {
            "amount": [Decimal("1.3000"), None],
            "member": [True, None],
            "plan": ["b", None],
            "region": [Decimal(7), None],
            "vector": ["[0.5, 1]", None],
        }
    )
    encoder = Encoder(fit(schema))
    online = encoder.rows([found[entity] or {} for entity in ("a", "b")])
    assert online.rejections == ()
    for one, other in zip(online.inputs(), encoder.columns(batch).inputs(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_date_is_left_to_the_rules(postgres: PostgresProcess) -> None:
    """A value that no feature takes costs its own row, with a code, as everywhere."""
    postgres.run("create table t (id text, x date, c text)", "insert into t values ('a', '2026-11-30', 'u')")

    assert read(postgres.url("t"), "a") == {"a": {"x": date(2026, 11, 30), "c": "u"}}


def test_several_rows_of_one_id_are_nobodys_features(database: Database, log: io.StringIO) -> None:
    """Which of them counts is not known: the entity's features cannot be read, those of others can."""
    database.run("create table t (id text, x integer, c text)", ROWS, "insert into t values ('a', 9, 'v')")

    assert read(database.url("t"), "a", "b") == {"a": None, "b": {"x": 2, "c": "v"}}
    assert '"several rows of one id"' in log.getvalue()


def test_a_table_of_events_is_refused(database: Database) -> None:
    """The answer is bounded: what has hundreds of rows for an id is not a table of features."""
    rows = ", ".join(["('a', 1, 'u')"] * (MAX_REPEATS + 2))
    database.run("create table t (id text, x integer, c text)", f"insert into t values {rows}")

    with pytest.raises(SourceError, match="many rows of one id; name a view"):
        read(database.url("t"), "a")


def test_names_are_names_whatever_they_spell(database: Database) -> None:
    """Reserved words, upper case, blanks, quotes and signs in the names of columns and tables."""
    schema = Schema(
        entity="Customer Id",
        features=(Numeric("select"), Numeric("Mixed Case.1-2")),
        outputs=(Binary("y"),),
    )
    database.run(
        'create table "Or""der %s" ("Customer Id" text, "select" integer, "Mixed Case.1-2" integer)',
        """insert into "Or""der %s" values ('a', 1, 2)""",
    )

    assert read(database.url("Or%22der%20%25s"), "a", schema=schema) == {"a": {"select": 1, "Mixed Case.1-2": 2}}


def test_a_view_will_do(database: Database) -> None:
    """Where the table is not of the form that is needed, a view of it is; the column of ids can be named."""
    database.run(
        "create table t (id text primary key, x integer, c text)",
        ROWS,
        "create view features as select id as customer, x + 1 as x, c from t",
    )

    assert read(database.url("features") + "&entity_column=customer", "a") == {"a": {"x": 2, "c": "u"}}
    named = FeatureSettings(sql_table="features", sql_entity_column="customer").model_dump(exclude={"url"})
    assert read(database.url("").replace("?table=", ""), "a", **named) == {"a": {"x": 2, "c": "u"}}


def test_a_table_of_another_schema(postgres: PostgresProcess) -> None:
    """SCHEMA.TABLE names it."""
    postgres.run(
        "create schema other", "create table other.t (id text, x integer, c text)", "insert into other." + ROWS[12:]
    )

    assert read(postgres.url("other.t"), "b") == {"b": {"x": 2, "c": "v"}}


def test_a_uuid_is_found_by_the_text_that_is_written_for_it(postgres: PostgresProcess) -> None:
    """Lower case with dashes; another spelling is another id."""
    one = UUID(int=0xABC)
    postgres.run("create table t (id uuid, x integer, c text)", f"insert into t values ('{one}', 1, 'u')")

    assert read(postgres.url("t"), str(one), str(one).upper(), one.hex, "x") == {str(one): {"x": 1, "c": "u"}}


@pytest.mark.parametrize("kind", ["double precision", "decimal(9, 0)", "boolean", "date"])
def test_a_column_that_cannot_hold_ids_is_refused(database: Database, kind: str) -> None:
    """As in a table of the batch: 5.0 may have been 5."""
    database.run(f"create table t (id {kind}, x integer, c text)")
    with pytest.raises(ColumnRefused, match=r"column id is .*cannot be an entity id"):
        read(database.url("t"))


def test_padded_ids_are_refused(postgres: PostgresProcess) -> None:
    """CHAR pads with blanks, and an id is exact."""
    postgres.run("create table t (id char(8), x integer, c text)")
    with pytest.raises(ColumnRefused, match="pads ids"):
        read(postgres.url("t"))


def test_a_collation_finds_no_other_entity(sqlite: Sqlite) -> None:
    """Where the database takes A for a, the answer is still a's alone."""
    sqlite.run("create table t (id text collate nocase, x integer, c text)", "insert into t values ('a', 1, 'u')")

    assert read(sqlite.url("t"), "a", "A") == {"a": {"x": 1, "c": "u"}}


def test_text_that_is_not_utf8_costs_its_row(sqlite: Sqlite) -> None:
    """A value that cannot be read is refused by its feature; its neighbours are not touched."""
    sqlite.run(
        "create table t (id text, x integer, c text)",
        "insert into t values ('a', 1, cast(x'ff' as text)), ('b', 2, 'v')",
    )
    found = read(sqlite.url("t"), "a", "b")

    assert found == {"a": {"x": 1, "c": b"\xff"}, "b": {"x": 2, "c": "v"}}


def test_what_is_missing_is_named(database: Database) -> None:
    """The operator reads which column of which table, or which table."""
    database.run("create table t (id text, x integer)", "create table u (x integer, c text)")
    with pytest.raises(ColumnMissing, match=r"table t of .* has no column 'c'"):
        read(database.url("t"))
    with pytest.raises(ColumnMissing, match=r"table u of .* has no column 'id'"):
        read(database.url("u"))
    with pytest.raises(TableNotFound, match="has no table nothing"):
        read(database.url("nothing"))


def test_a_column_that_comes_later_is_read_without_a_restart(database: Database) -> None:
    """The next question finds it."""
    database.run("create table t (id text, x integer)", "insert into t values ('7', 1)")

    async def story(source: SqlFeatures) -> Mapping[str, Row | None]:
        with pytest.raises(ColumnMissing):
            await source.read(["7"])
        await asyncio.to_thread(database.run, "alter table t add column c text")
        return await source.read(["7"])

    assert ask(database.url("t"), story) == {"7": {"x": 1, "c": None}}


def test_a_column_that_changes_is_looked_at_anew(postgres: PostgresProcess) -> None:
    """The question that meets the change fails, the next one knows that the ids are integers now."""
    postgres.run("create table t (id text, x integer, c text)")

    async def story(source: SqlFeatures) -> Mapping[str, Row | None]:
        await source.read(["7"])
        later = ("drop table t", "create table t (id integer, x integer, c text)", "insert into t values (7, 1, 'u')")
        await asyncio.to_thread(postgres.run, *later)
        with pytest.raises(SourceDown):
            await source.read(["7"])
        return await source.read(["7", "x"])

    assert ask(postgres.url("t"), story) == {"7": {"x": 1, "c": "u"}}


def test_a_file_that_is_no_database_is_down(tmp_path: Path) -> None:
    """Its bytes are not repeated."""
    (tmp_path / "x.db").write_bytes(b"4242" * 2000)
    with pytest.raises(SourceDown, match=r"x\.db cannot be asked \(SQLITE_NOTADB\)"):
        read(f"sqlite:///{tmp_path / 'x.db'}?table=t")
