"""What the doctor says of a server that answers and is set up badly."""

from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis
from support.doctor import Doctor
from support.servers import HOST, ValkeyProcess, dead_port, wait_until


def _fill(client: Redis) -> None:
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.1))


SPOILT: dict[str, tuple[str, str, str, Callable[[Redis], object]]] = {
    "allkeys": (
        "eviction",
        "failure",
        "noeviction",
        lambda client: client.config_set("maxmemory-policy", "allkeys-lru"),
    ),
    "volatile": ("eviction", "note", "lease", lambda client: client.config_set("maxmemory-policy", "volatile-ttl")),
    "replica": ("role", "failure", "replica", lambda client: client.replicaof(HOST, dead_port())),
    "idle": ("idle connections", "warning", "timeout 5 s", lambda client: client.config_set("timeout", 5)),
    "keepalive": ("idle connections", "warning", "dead", lambda client: client.config_set("tcp-keepalive", 0)),
    "entries": ("listpack limits", "warning", "32", lambda client: client.config_set("hash-max-listpack-entries", 32)),
    "value": ("listpack limits", "warning", "8", lambda client: client.config_set("hash-max-listpack-value", 8)),
    "full": ("memory", "warning", "MiB", _fill),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_server_that_is_set_up_badly(doctor: Doctor, server: ValkeyProcess, spoilt: str) -> None:
    """Each finding has its level, its number and its next step."""
    check, level, text, spoil = SPOILT[spoilt]
    with Redis(port=server.port) as client:
        spoil(client)
    assert doctor(server.url, "--model", "purchase") == int(level == "failure")
    assert doctor.level(check) == level
    assert text in doctor.text(check)
    assert doctor.found[check][0]["next_step"]


def test_a_disk_that_refuses_is_found(doctor: Doctor, server: ValkeyProcess, tmp_path: Path) -> None:
    """A snapshot to disk that failed stops all writes, and so the next run."""
    (tmp_path / "dump.rdb").mkdir()  # the server cannot put its file there
    with Redis(port=server.port) as client:
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
    assert doctor(server.url) == 1
    assert doctor.level("persistence") == "failure"
    assert "refuses writes" in doctor.text("persistence")


def test_a_user_who_may_too_little(doctor: Doctor, server: ValkeyProcess, namespace: str) -> None:
    """What the service's user may not do is named, before a request finds it."""
    rules = ("resetchannels", "allkeys", "+@all", "-del", "-hset")
    with Redis(port=server.port) as client:
        client.execute_command("ACL SETUSER", "reader", "on", ">x", *rules)
    assert doctor(server.url, "--model", "purchase", "--reader", "reader") == 1
    assert "write a field back, forget features" in doctor.text("reader may")
    assert doctor.level("writer may") == "ok"


def test_what_is_not_told_is_not_looked_at(doctor: Doctor, server: ValkeyProcess) -> None:
    """For a user who may see nothing, each check says that it could not look, and where help is."""
    with Redis(port=server.port) as client:
        client.execute_command("ACL SETUSER", "blind", "on", ">x", "+ping", "resetchannels")
    code = doctor(f"redis://blind:x@{HOST}:{server.port}", "--model", "purchase")
    assert doctor.level("version") == "note"
    assert "INFO" in doctor.text("version")
    assert "docs/security.md" in doctor.text("idle connections")
    assert "NOPERM" in doctor.text("model")
    assert code == 1
