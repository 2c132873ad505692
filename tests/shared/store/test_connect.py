"""Both sides of the store at once, as the settings open them."""

import asyncio
from pathlib import Path

from support.servers import ValkeyProcess
from support.snapshots import load, promote, rollback, snapshot_meta
from support.stores import settings_for

from shared.settings import Settings
from shared.snapshot import Found
from shared.store.connect import models, open_async_store, open_store
from shared.store.interfaces import AsyncStore, Store

IDS = [f"C{number}" for number in range(100)]
SCORES = {"1-A": (1.0,), "2-B": (2.0,)}


def test_without_a_url_there_is_an_embedded_server(tmp_path: Path) -> None:
    """Both sides share the one of the home."""
    settings = Settings(home=tmp_path)

    async def _read(store: Store) -> object:
        meta = load(store, snapshot_meta(), {"a": 0.5})
        promote(store, meta.snapshot)
        async with open_async_store(settings, "churn") as serving:
            active = await serving.reader.active()
            assert active is not None
            return (await serving.reader.lookup(active.meta, ["a"]))[0]

    with open_store(settings, "churn") as store:
        assert isinstance(asyncio.run(_read(store)), Found)
        assert models(settings) == ["churn"]


def test_promotions_under_load_never_mix(valkey: ValkeyProcess, namespace: str) -> None:
    """A4, A14: while the pointer flips twenty times, every bulk answer is of the one snapshot that it names."""
    settings = settings_for(valkey.url, namespace)

    def _flip(store: Store) -> None:
        for turn in range(20):
            promote(store, "2-B" if turn % 2 == 0 else "1-A")
        rollback(store)

    async def _read_once(serving: AsyncStore) -> str:
        active = await serving.reader.active()
        assert active is not None
        found = await serving.reader.lookup(active.meta, IDS)
        assert [answer.scores for answer in found if isinstance(answer, Found)] == [SCORES[active.meta.snapshot]] * 100
        return active.meta.snapshot

    async def _read_while_flipping(store: Store) -> set[str]:
        async with open_async_store(settings, "churn") as serving:
            seen = {await _read_once(serving)}
            flips = asyncio.create_task(asyncio.to_thread(_flip, store))
            while not flips.done():
                seen.add(await _read_once(serving))
            await flips
            return seen | {await _read_once(serving)}

    with open_store(settings, "churn") as store:
        for snapshot, scores in SCORES.items():
            load(store, snapshot_meta(snapshot, entities=len(IDS)), dict.fromkeys(IDS, scores))
        promote(store, "1-A")
        assert asyncio.run(_read_while_flipping(store)) == {"1-A", "2-B"}
