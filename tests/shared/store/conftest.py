"""The stores on which the contract suite runs: in memory, fakeredis, Valkey, Valkey as a cluster, and Redis if any."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError
from support.servers import ValkeyProcess, free_port, start_valkey, wait_until
from support.stores import Backend, fake_backend, memory_backend, settings_for

from shared.embedded import valkey_binary
from shared.store.connect import open_async_store, open_store

REDIS_SERVER = shutil.which("redis-server")
BACKENDS = ["memory", "fakeredis", "valkey", "cluster", *(["redis"] if REDIS_SERVER else [])]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """A cluster of one node that has every slot."""
    with start_valkey(tmp_path_factory.mktemp("cluster"), "--cluster-enabled", "yes") as server:
        with Redis(port=server.port) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            wait_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """The machine's own Redis, asked for only where there is one."""
    assert REDIS_SERVER is not None
    with start_valkey(tmp_path_factory.mktemp("redis"), binary=Path(REDIS_SERVER)) as server:
        yield server


@pytest.fixture(scope="session")
def sentinel(valkey: ValkeyProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a sentinel that knows the common server as ``main``."""
    folder, port = tmp_path_factory.mktemp("sentinel"), free_port()
    config = folder / "sentinel.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor main 127.0.0.1 {valkey.port} 1\n")
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


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, namespace: str) -> Iterator[Backend]:
    match request.param:
        case "memory":
            yield memory_backend()
        case "fakeredis":
            yield fake_backend(namespace)
        case kind:
            settings = settings_for(_url(kind, request), namespace)
            with open_store(settings, "churn") as store:
                yield Backend(store, lambda: open_async_store(settings, "churn"))


def _url(kind: str, request: pytest.FixtureRequest) -> str:
    server: ValkeyProcess = request.getfixturevalue("redis_server" if kind == "redis" else kind)
    return f"redis+cluster://127.0.0.1:{server.port}" if kind == "cluster" else server.url
