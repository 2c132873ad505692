"""Processes that belong together."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread

import pytest
from support.servers import wait_until

from shared.errors import PartEnded
from shared.processes import Part, together

SERVES = """
import http.server, pathlib, sys, threading, signal
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if pathlib.Path(sys.argv[1], "ready").exists() else 503)
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
def end(*_):
    pathlib.Path(sys.argv[1], "ended").touch()
    raise SystemExit
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[1], "pid").write_text(str(__import__("os").getpid()))
print(f"listening on http://127.0.0.1:{server.server_port} (and so on)", flush=True)
server.serve_forever()
"""
DEAF = SERVES.replace("signal.signal(signal.SIGTERM, end)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")


class Bench:
    """Two parts, each with a folder; ``during`` is done in a thread while they run."""

    def __init__(self, tmp_path: Path) -> None:
        self.folders = {name: tmp_path / name for name in ("a", "b")}
        for folder in self.folders.values():
            folder.mkdir()
        self.told: list[Mapping[str, str]] = []
        self.said: list[str] = []
        self.failures: list[AssertionError] = []

    def run(self, during: Callable[[], None], *, code: Mapping[str, str] | None = None, seconds: float = 60) -> int:
        parts = [
            Part(
                name=name,
                command=[sys.executable, "-c", (code or {}).get(name, SERVES), str(folder)],
                probe="/readyz",
                environment={},
            )
            for name, folder in self.folders.items()
        ]
        thread = Thread(target=self._watched, args=(during,))
        thread.start()
        try:
            return together(parts, self.told.append, stop_seconds=seconds, said=self.said.append)
        finally:
            thread.join()
            assert self.failures == []

    def _watched(self, during: Callable[[], None]) -> None:
        try:
            during()
        except AssertionError as error:  # it ends the test instead of leaving it waiting
            self.failures.append(error)
            os.kill(os.getpid(), signal.SIGTERM)

    def has(self, name: str, file: str) -> bool:
        return (self.folders[name] / file).exists()

    def begun(self) -> bool:
        return all(self.has(name, "pid") for name in self.folders)

    def pid(self, name: str) -> int:
        return int((self.folders[name] / "pid").read_text())

    def make_ready(self) -> None:
        for folder in self.folders.values():
            (folder / "ready").touch()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_told_to_end_all_end_in_good_order(bench: Bench, number: signal.Signals, code: int) -> None:
    """Ready is told once, with the URL of each, when all say so; then a signal ends every one."""

    def during() -> None:
        wait_until(bench.begun, 60)
        assert bench.told == []
        bench.make_ready()
        wait_until(lambda: bool(bench.told), 60)
        os.kill(os.getpid(), number)

    assert bench.run(during) == code
    assert len(bench.told) == 1
    assert all(bench.told[0][name].startswith("http://127.0.0.1:") for name in ("a", "b"))
    assert all(bench.has(name, "ended") for name in ("a", "b"))
    assert sorted(line[:15] for line in bench.said) == ["a: listening on", "b: listening on"]


def test_one_that_ends_by_itself_ends_all(bench: Bench) -> None:
    """Nothing is restarted: the one is named with how it ended, and the other was stopped."""

    def during() -> None:
        wait_until(bench.begun, 60)
        os.kill(bench.pid("a"), signal.SIGKILL)

    with pytest.raises(PartEnded, match="the a ended by itself, with signal 9; so everything was stopped"):
        bench.run(during)
    assert bench.has("b", "ended")


def test_one_that_does_not_even_begin(bench: Bench) -> None:
    """Its exit code is told."""
    with pytest.raises(PartEnded, match="the b ended by itself, with exit code 2"):
        bench.run(lambda: None, code={"b": "raise SystemExit(2)"})
    assert not bench.told


def test_one_that_does_not_hear_is_killed(bench: Bench) -> None:
    """After the time that it is given; nothing is left."""

    def during() -> None:
        wait_until(bench.begun, 60)
        os.kill(os.getpid(), signal.SIGTERM)

    assert bench.run(during, code={"a": DEAF}, seconds=0.2) == 0
    assert bench.has("b", "ended")
    assert all(gone(bench.pid(name)) for name in ("a", "b"))


def test_the_signals_are_as_before_afterwards(bench: Bench) -> None:
    """What handled SIGTERM and Ctrl-C before handles them again."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(PartEnded):
        bench.run(lambda: None, code={"a": "pass"})
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
