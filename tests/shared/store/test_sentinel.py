"""A server behind a real sentinel."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError
from support.servers import ValkeyProcess, free_port, wait_until
from support.snapshots import load, promote, snapshot_meta
from support.stores import Backend, settings_for

from shared.embedded import valkey_binary
from shared.snapshot import Active, Found
from shared.store.connect import open_async_store, open_store


@contextmanager
def _sentinel(folder: Path, server: ValkeyProcess) -> Iterator[int]:
    port = free_port()
    config = folder / "sentinel.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor main 127.0.0.1 {server.port} 1\n")
    with (folder / "sentinel.log").open("wb") as log:
        process = subprocess.Popen([str(valkey_binary()), str(config), "--sentinel"], stdout=log, stderr=log)
    try:
        wait_until(lambda: _knows_main(port))
        yield port
    finally:
        process.terminate()
        process.wait(timeout=20)


def _knows_main(port: int) -> bool:
    try:
        with Redis(port=port) as client:
            return client.sentinel_get_master_addr_by_name("main") is not None
    except RedisError:
        return False


def test_the_store_is_found_through_its_sentinel(valkey: ValkeyProcess, tmp_path: Path, namespace: str) -> None:
    """Both sides reach the primary that the sentinel names: loading on the wire, promoting, reading."""
    with _sentinel(tmp_path, valkey) as port:
        settings = settings_for(f"redis+sentinel://127.0.0.1:{port}/main", namespace)
        with open_store(settings, "churn") as store:
            backend = Backend(store, lambda: open_async_store(settings, "churn"))
            meta = load(store, snapshot_meta(), {"a": 0.5})
            flip = promote(store, meta.snapshot)
            assert backend.ask(lambda store: store.reader.active()) == Active(meta=meta, epoch=flip.epoch)
            [found] = backend.ask(lambda store: store.reader.lookup(meta, ["a"]))
            assert isinstance(found, Found)
