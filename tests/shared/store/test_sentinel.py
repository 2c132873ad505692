"""A server behind a real sentinel."""

from support.snapshots import load, promote, snapshot_meta
from support.stores import Backend, settings_for

from shared.snapshot import Active, Found
from shared.store.connect import open_async_store, open_store


def test_the_store_is_found_through_its_sentinel(sentinel: int, namespace: str) -> None:
    """Both sides reach the primary that the sentinel names: loading on the wire, promoting, reading."""
    settings = settings_for(f"redis+sentinel://127.0.0.1:{sentinel}/main", namespace)
    with open_store(settings, "churn") as store:
        backend = Backend(store, lambda: open_async_store(settings, "churn"))
        meta = load(store, snapshot_meta(), {"a": 0.5})
        flip = promote(store, meta.snapshot)
        assert backend.ask(lambda store: store.reader.active()) == Active(meta=meta, epoch=flip.epoch)
        [found] = backend.ask(lambda store: store.reader.lookup(meta, ["a"]))
        assert isinstance(found, Found)
