"""What every store promises about features of entities, on every store."""

import pytest
from support.servers import wait_until
from support.stores import Backend

from shared.store.features import SLAB_BYTES, SLAB_COMMANDS
from shared.store.interfaces import AsyncStore


def test_features_are_kept_for_each_entity(backend: Backend) -> None:
    """Payloads come back as they were written, in the order of the ids, None where there are none."""

    async def write_and_read(store: AsyncStore) -> list[bytes | None]:
        await store.features.write("{a}", b"\x00one", 60)
        await store.features.write("b", b"two", 60)
        return await store.features.read(["b", "nobody", "{a}"])

    assert backend.ask(write_and_read) == [b"two", None, b"\x00one"]


def test_features_that_are_deleted_are_gone(backend: Backend) -> None:
    """Of one entity, and again is fine."""

    async def write_and_delete(store: AsyncStore) -> list[bytes | None]:
        await store.features.write("a", b"one", 60)
        await store.features.write("b", b"two", 60)
        await store.features.delete("a")
        await store.features.delete("a")
        return await store.features.read(["a", "b"])

    assert backend.ask(write_and_delete) == [None, b"two"]


def test_many_features_are_written_at_once(backend: Backend) -> None:
    """More than one slab of them; what was there is replaced; of several for one id the last counts."""
    ids = [f"C{number}" for number in range(2 * SLAB_COMMANDS + 1)]
    backend.ask(lambda store: store.features.write("C7", b"old", 60))
    rows = [*((entity, b"first") for entity in ids), ("C7", b"last")]

    assert backend.store.features.write_many(iter(rows), 60) == len(rows)
    found = backend.ask(lambda store: store.features.read(ids))
    assert found == [b"last" if entity == "C7" else b"first" for entity in ids]


def test_no_features_are_written_at_once_too(backend: Backend) -> None:
    """Nothing to write is nothing."""
    assert backend.store.features.write_many([], 60) == 0


@pytest.mark.parametrize("many", [False, True])
def test_features_live_as_long_as_they_are_told_to(backend: Backend, many: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """However they were written."""
    if many:
        backend.store.features.write_many([("a", b"one"), ("b", b"two")], 1)
    else:
        backend.ask(lambda store: store.features.write("a", b"one", 1))
    wait_until(lambda: backend.ask(lambda store: store.features.read(["a", "b"])) == [None, None])


def test_large_features_go_out_in_smaller_slabs(backend: Backend) -> None:
    """What waits for its replies is bounded in bytes as well."""
    rows = [(f"C{number}", bytes(SLAB_BYTES // 3)) for number in range(8)]
    backend.store.features.write_many(rows, 60)

    assert backend.ask(lambda store: store.features.read(["C0", "C7"])) == [rows[0][1], rows[7][1]]
