import socket
from pathlib import Path

import pytest
from redis import Redis
from support.servers import HOST, ValkeyProcess, dead_port, hung_server, start_valkey, wait_until

from shared.settings import RedisSettings


def test_a_paused_server_is_silent(tmp_path: Path) -> None:
    """A paused server takes connections and says nothing, and goes on where it was when it is resumed."""
    with start_valkey(tmp_path) as server:
        server.pause()
        assert not server.answers()
        server.resume()
        assert server.answers()


def test_a_restarted_server_is_empty(tmp_path: Path) -> None:
    """A restart keeps the port and nothing else."""
    with start_valkey(tmp_path) as server:
        url = server.url
        with Redis.from_url(url) as client:
            client.set("a", "1")
        server.restart()
        with Redis.from_url(url) as client:
            assert client.dbsize() == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_an_ended_server_refuses(tmp_path: Path, end: str) -> None:
    """After stop and after kill, paused or not, nobody listens."""
    server = start_valkey(tmp_path)
    server.pause()
    getattr(server, end)()
    assert not server.answers()


def test_a_dead_port_refuses() -> None:
    """Nobody listens on a dead port."""
    with pytest.raises(ConnectionRefusedError), socket.create_connection((HOST, dead_port()), timeout=5):
        pass


def test_a_hung_server_is_silent() -> None:
    """A hung server takes the connection and the bytes, and never answers."""
    with hung_server() as port, socket.create_connection((HOST, port), timeout=0.1) as connection:
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_a_condition_is_waited_for_within_bounds() -> None:
    """A condition that never holds fails the test instead of holding it up."""
    with pytest.raises(AssertionError, match="still not so"):
        wait_until(lambda: False, timeout=0.02)


def test_each_test_has_a_corner_of_its_own(
    valkey: ValkeyProcess, redis_settings: RedisSettings, namespace: str
) -> None:
    """The settings for tests lead to the shared server, under keys that no other test uses."""
    assert redis_settings.url is not None
    assert redis_settings.url.get_secret_value() == valkey.url
    assert redis_settings.namespace == namespace
