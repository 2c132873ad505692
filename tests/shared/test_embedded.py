import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from support.servers import wait_until

from shared import embedded
from shared.embedded import MAX_SOCKET_BYTES, embedded_store
from shared.errors import SettingsError, StoreDown, StoreRefused

USER = """
import sys
from pathlib import Path
from shared.embedded import embedded_store

with embedded_store(Path(sys.argv[1])) as url:
    print(url, flush=True)
    sys.stdin.readline()
"""


def started(home: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@contextmanager
def user(home: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that uses the home's server until the block ends."""
    process = started(home)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("unix://")
    yield process
    process.communicate("\n", timeout=30)


def pid_of(url: str) -> int:
    with Redis.from_url(url) as client:
        return int(cast("dict[str, int]", client.info("server"))["process_id"])


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def answers(url: str) -> bool:
    try:
        with Redis.from_url(url) as client:
            return bool(client.ping())
    except RedisConnectionError:
        return False


def test_it_keeps_what_it_holds(tmp_path: Path) -> None:
    """What was written is there after the last user has left and another has come."""
    with embedded_store(tmp_path) as url, Redis.from_url(url) as client:
        client.set("a", "1")
    assert not answers(url)
    with embedded_store(tmp_path) as url, Redis.from_url(url) as client:
        assert client.get("a") == b"1"


def test_users_share_one_server(tmp_path: Path) -> None:
    """Two processes of one home use one server, and it stays until the second has left too."""
    with embedded_store(tmp_path) as url:
        pid = pid_of(url)
        stack = ExitStack()
        other = stack.enter_context(user(tmp_path))
        assert pid_of(url) == pid
    assert answers(url)
    stack.close()
    assert not answers(url)
    assert other.returncode == 0


def test_many_start_at_once(tmp_path: Path) -> None:
    """Users that come at the same moment find the same server."""
    others = [started(tmp_path) for _ in range(3)]
    urls = {process.communicate("\n", timeout=60)[0] for process in others}
    assert len(urls) == 1
    assert [process.returncode for process in others] == [0, 0, 0]


def test_one_process_may_use_it_twice(tmp_path: Path) -> None:
    """A second use inside the first neither waits for ever nor stops the server under the first."""
    with embedded_store(tmp_path) as url:
        with embedded_store(tmp_path) as inner:
            assert inner == url
        assert answers(url)


def test_a_server_left_behind_is_adopted(tmp_path: Path) -> None:
    """After kill -9 of its only user the server lives; the next user takes it over and stops it."""
    with user(tmp_path) as killed:
        killed.kill()
    url = f"unix://{tmp_path}/store/valkey.sock"
    left = pid_of(url)
    with embedded_store(tmp_path) as url:
        assert pid_of(url) == left
    assert not answers(url)


def test_a_dead_socket_is_replaced(tmp_path: Path) -> None:
    """After kill -9 of the server itself, the next user starts another over its socket file."""
    with embedded_store(tmp_path) as url:
        os.kill(pid_of(url), signal.SIGKILL)
        wait_until(lambda: not answers(url))
        assert (tmp_path / "store" / "valkey.sock").exists()
        with embedded_store(tmp_path) as again:
            assert answers(again)
    with embedded_store(tmp_path) as url:
        assert answers(url)


def test_the_terminals_interrupt_does_not_reach_it(tmp_path: Path) -> None:
    """The server has a session of its own, so that Ctrl-C ends the command and not the store."""
    with embedded_store(tmp_path) as url:
        assert os.getsid(pid_of(url)) == pid_of(url) != os.getsid(0)


def test_nobody_else_may_look(tmp_path: Path) -> None:
    """Folder and socket are their owner's alone."""
    with embedded_store(tmp_path):
        assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "store" / "valkey.sock").stat().st_mode) == 0o700


def test_a_long_home_gets_a_short_socket(tmp_path: Path) -> None:
    """A home whose path is too long for a unix socket works, for its second user too."""
    home = tmp_path / ("long" * 30)
    with embedded_store(home) as url:
        assert len(url) < MAX_SOCKET_BYTES
        with user(home):
            assert pid_of(url) > 0
    with embedded_store(home) as again:
        assert again == url
    shutil.rmtree((home / "store" / "short").readlink())


def test_a_home_with_odd_characters(tmp_path: Path) -> None:
    """Blanks, percent signs and question marks in the home's path reach the server as they are."""
    with embedded_store(tmp_path / "a b%20?#c") as url:
        assert answers(url)


def test_a_deleted_home_does_not_harm_the_next(tmp_path: Path) -> None:
    """A user whose home was deleted under it stops its own server, not the one that has come in its place."""
    with embedded_store(tmp_path) as url:
        first = pid_of(url)
        shutil.rmtree(tmp_path / "store")
        stack = ExitStack()
        stack.enter_context(user(tmp_path))
        assert pid_of(url) != first
    assert answers(url)
    wait_until(lambda: not runs(first))
    stack.close()
    assert not answers(url)


def test_it_names_its_log_when_it_does_not_start(tmp_path: Path) -> None:
    """A store file that cannot be read ends in one line with the log's path."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "dump.rdb").write_bytes(b"not a dump")
    with pytest.raises(StoreDown, match=r"did not start; its log is .*/store/valkey\.log"), embedded_store(tmp_path):
        pass


def test_it_says_when_it_cannot_save(tmp_path: Path) -> None:
    """A server that cannot save keeps running rather than losing what it holds, and says so."""
    with pytest.raises(StoreRefused, match="could not save"), embedded_store(tmp_path) as url:
        (tmp_path / "store" / "dump.rdb").mkdir()
    assert answers(url)
    (tmp_path / "store" / "dump.rdb").rmdir()
    with embedded_store(tmp_path):
        pass
    assert not answers(url)


def test_a_platform_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no server to start, the error says to name one that runs."""
    monkeypatch.setattr("platform.system", lambda: "Plan9")
    with pytest.raises(StoreDown, match="FORESCORE_REDIS__URL"), embedded_store(tmp_path):
        pass


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    """A home that cannot be a folder is a mistake in the settings, and is named."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"FORESCORE_HOME: .*file"), embedded_store(tmp_path / "file"):
        pass


def test_a_turn_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If somebody stays in the middle of starting the server, the next says so after its patience."""
    monkeypatch.setattr(embedded, "_PATIENCE_SECONDS", 0.05)
    (tmp_path / "store").mkdir()
    with embedded._opened(tmp_path / "store" / "turn.lock") as turn:
        assert embedded._got(turn)
        with pytest.raises(StoreDown, match="another process"), embedded_store(tmp_path):
            pass
