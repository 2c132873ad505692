"""``forescore features load``, as a user calls it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from support.command import Command
from support.servers import dead_port

from batch_job import features
from batch_job.features import Progress, load
from batch_job.job import open_job
from shared.bundle import Bundle
from shared.encode import Encoder
from shared.errors import StoreDown
from shared.payload import row_of
from shared.settings import load_settings
from shared.store.connect import open_async_store, open_store
from shared.testing.bundles import every_feature_bundle, every_feature_table
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

Write = Callable[..., Path]


def kept(*ids: str) -> list[bytes | None]:
    """What the store of the environment's settings has for the ids."""

    async def story() -> list[bytes | None]:
        async with open_async_store(load_settings(), "purchase") as store:
            return await store.features.read(ids)

    return asyncio.run(story())


def test_a_table_is_loaded(command: Command, bundle: Bundle, write: Write) -> None:
    """Every row that fits is in the store, as PUT /features would have written it, and the account is printed."""
    assert command("features", "load", write(), "--bundle", bundle.path) == 0
    assert (command.told("model"), command.told("loaded"), command.told("rejected"), command.told("duplicate")) == (
        "purchase 1",
        "4, kept for 604,800 s",
        "0",
        "0",
    )
    assert command.told("input").startswith("4 rows of ")
    assert kept("0", "3", "4") == [
        b'{"visits":1,"returns":0,"basket":2}',
        b'{"visits":1,"returns":1,"basket":1}',
        None,
    ]


def test_rows_that_break_a_rule_are_reported_and_not_written(command: Command, bundle: Bundle, write: Write) -> None:
    """Code and field, never the value; the neighbours are loaded; the exit code is that of a backfill."""
    table = write(visits=["1", "secret", "2", None], customer_id=["a", "b", None, "d"])
    arguments = ("features", "load", table, "--bundle", bundle.path, "--json")
    assert command(*arguments, "--max-rejected", "3") == 0
    assert command.json() == {
        "event": "finished",
        "model": "purchase",
        "model_version": "1",
        "input_path": str(table),
        "ttl_seconds": 604_800,
        "counts": {
            "input": 4,
            "loaded": 1,
            "rejected": 3,
            "duplicate": 0,
            "rejections": [
                {"code": "missing", "field": "visits", "rows": 1},
                {"code": "not_a_number", "field": "visits", "rows": 1},
                {"code": "null_id", "field": "customer_id", "rows": 1},
            ],
        },
    }
    assert [row is not None for row in kept("a", "b", "d")] == [True, False, False]
    assert command(*arguments) == 1
    assert "3 of 4 rows rejected, more than --max-rejected 10%" in command.err
    assert command.json()["event"] == "finished"
    assert "secret" not in command.out + command.err


def test_several_rows_of_one_entity(command: Command, bundle: Bundle, write: Write) -> None:
    """Refused, unless it is said which counts; every row is accounted for."""
    table = write(customer_id=["a", "b", "a", "a"], visits=[1, 2, 9, 4])
    arguments = ("features", "load", table, "--bundle", bundle.path)
    assert command(*arguments) == 1
    assert "2 rows repeat the id of another row" in command.err
    assert kept("a") == [None]
    assert command(*arguments, "--duplicates", "last") == 0
    assert (command.told("loaded"), command.told("duplicate")) == ("2, kept for 604,800 s", "2")
    assert row_of(kept("a")[0] or b"") == {"visits": 4, "returns": 1, "basket": 1}
    assert command(*arguments, "--order-by", "visits") == 0
    assert row_of(kept("a")[0] or b"") == {"visits": 9, "returns": 1, "basket": 0}


def test_only_what_is_selected(command: Command, bundle: Bundle, write: Write) -> None:
    """The filters are those of a backfill."""
    arguments = ("features", "load", write(), "--bundle", bundle.path)
    assert command(*arguments, "--where", "visits >= 1", "--limit", 2, "--chunk-size", 1, "--json") == 0
    assert [line.partition(",")[0] for line in command.out.splitlines()] == [
        '{"event":"chunk"',
        '{"event":"chunk"',
        '{"event":"finished"',
    ]
    assert [row is not None for row in kept("0", "1", "2", "3")] == [True, False, True, False]


def test_they_live_as_long_as_told(
    command: Command, bundle: Bundle, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--ttl`` up to the setting, which is the default."""
    monkeypatch.setenv("FORESCORE_BUNDLE", str(bundle.path))
    assert command("features", "load", write(), "--ttl", 60) == 0
    assert command.told("loaded") == "4, kept for 60 s"
    assert command("features", "load", write(), "--ttl", 604_801) == 2
    assert "--ttl 604801: at most 604800" in command.err


def test_without_a_bundle_it_is_a_mistake(command: Command, write: Write) -> None:
    """The schema comes from somewhere."""
    assert command("features", "load", write()) == 2
    assert "no bundle: name the one whose schema the table has" in command.err


def test_a_store_that_is_down_is_one_line(
    command: Command, bundle: Bundle, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 1, and the same command can be called again."""
    monkeypatch.setenv("FORESCORE_REDIS__URL", f"redis://127.0.0.1:{dead_port()}")
    assert command("features", "load", write(), "--bundle", bundle.path) == 1
    assert "cannot be reached" in command.err


def test_what_was_loaded_encodes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By way of the store every kind of feature, from any type of column, is what it is in the table."""
    bundle = every_feature_bundle(tmp_path / "bundle")
    table = every_feature_table(300)
    path = tmp_path / "t.arrow"
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    memory = MemoryStore("everything")
    monkeypatch.setattr(features, "SLAB_VALUES", 50)
    job = open_job(path, bundle=bundle, chunk_size=128)
    counts = load(job, memory.store.features, 60, Progress(_Nowhere(), FrozenClock(), as_json=False))

    encoder = Encoder(bundle.fitted)
    batch = encoder.columns(table)
    ids = [table["id"][int(row)].as_py() for row in batch.rows]
    payloads = asyncio.run(memory.async_store.features.read(ids))
    online = encoder.rows([row_of(payload or b"") or {} for payload in payloads])
    assert (counts.input, counts.scored, counts.rejected) == (300, len(batch), 300 - len(batch))
    assert online.rejections == ()
    assert [part.tobytes() for part in online.inputs()] == [part.tobytes() for part in batch.inputs()]


class _Nowhere:
    def write(self, _text: str) -> None: ...


def test_a_store_that_fails_ends_it(bundle: Bundle, write: Write) -> None:
    """What went wrong is raised as it is: nothing is counted as loaded that was not."""
    memory = MemoryStore("purchase")
    memory.failure = StoreDown("gone")
    job = open_job(write(), bundle=bundle, chunk_size=2)
    with pytest.raises(StoreDown):
        load(job, memory.store.features, 60, Progress(_Nowhere(), FrozenClock(), as_json=False))


def test_the_model_names_the_keys(command: Command, bundle: Bundle, write: Write) -> None:
    """The features are those of one model: another one does not read them."""
    command("features", "load", write(), "--bundle", bundle.path)

    async def other() -> list[bytes | None]:
        async with open_async_store(load_settings(), "churn") as store:
            return await store.features.read(["0"])

    assert asyncio.run(other()) == [None]
    with open_store(load_settings(), "purchase") as store:
        assert store.catalogue.active() is None
