"""Who starts the workers, and when: with processes that end at once, and a clock that moves as it is told."""

import io
import json
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.servers import wait_until
from support.services import service_settings

from service.workers import (
    ABORT_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MANIFEST,
    MOST_COUNTED_SECONDS,
    STEADY_SECONDS,
    Crew,
    Worker,
    pause_after,
)
from shared import bundle
from shared.testing.clock import FrozenClock

READY = "import os, sys, signal; os.write(int(sys.argv[1]), b'r'); signal.pause()"
SILENT = "import os, sys, signal; signal.signal(signal.SIGABRT, signal.SIG_IGN); os.write(int(sys.argv[1]), b'r'); \
signal.pause()"
FAILS = "import sys; sys.exit(2)"
LOADS = "import signal; signal.pause()"


class Played(Crew):
    """A crew whose workers run a line of Python in place of the service; what each was started with is kept."""

    code = FAILS

    def __init__(self, workers: int, listener: socket.socket, folder: Path, **service: object) -> None:
        self.clock = FrozenClock(0)
        self.starts: list[tuple[int, bool]] = []
        self.options: list[tuple[int, bool]] = []
        settings = service_settings(workers=workers, **service)
        super().__init__(settings.model_copy(update={"bundle": folder}), listener, folder, self.clock)

    def _command(self, worker: Worker, channel: socket.socket, *, opens_first: bool) -> Sequence[str]:
        self.starts.append((worker.number, opens_first))
        self.options.append((worker.number, worker.hung))
        return [sys.executable, "-S", "-c", self.code, str(channel.fileno())]

    def look_until(self, starts: int) -> None:
        """Looks until so many workers were started."""

        def looked() -> bool:
            self.look()
            return len(self.starts) >= starts

        wait_until(looked, 30)

    def look_until_logged(self, log: io.StringIO, event: str, times: int) -> None:
        def looked() -> bool:
            self.look()
            return logged(log).count(event) >= times

        wait_until(looked, 30)

    def look_for(self, seconds: float) -> None:
        """Looks as often as the real one does."""
        for _ in range(int(seconds / MOST_COUNTED_SECONDS)):
            self.clock.advance(MOST_COUNTED_SECONDS)
            self.look()


def logged(log: io.StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in log.getvalue().splitlines()]


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Played]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        crew = Played(3, listener, tmp_path)
        yield crew
        crew.close()


def test_the_first_opens_alone(crew: Played) -> None:
    """Until one is ready, one is started; then the others are, which take no connection before they are ready."""
    crew.code = LOADS
    crew.look()
    crew.look()
    assert crew.starts == [(1, False)]


def test_the_others_follow_once_one_is_ready(crew: Played) -> None:
    """What the first could load, the others can."""
    crew.code = READY
    crew.look_until(3)
    assert crew.starts == [(1, False), (2, True), (3, True)]


def test_a_worker_that_dies_is_started_again(crew: Played, log: io.StringIO) -> None:
    """Half a second later, with its number; and since the others answer, it takes no connection before it is ready."""
    crew.code = READY
    crew.look_until(3)
    (_, process), *_ = [pair for pair in crew._living() if pair[0].number == 2]
    process.kill()
    crew.look_until_logged(log, "worker ended", 1)
    crew.clock.advance(0.4)
    crew.look()
    assert len(crew.starts) == 3
    crew.clock.advance(0.1)
    crew.look()
    assert crew.starts[3:] == [(2, True)]


def test_what_cannot_start_is_tried_ever_more_seldom(crew: Played, log: io.StringIO) -> None:
    """A worker that ends as soon as it starts does not keep a core busy; nor are the others started to fail as well."""
    for failures in range(1, 6):
        crew.look_until_logged(log, "worker ended", failures)
        crew.clock.advance(pause_after(failures) - 0.001)
        crew.look()
        assert len(crew.starts) == failures
        crew.clock.advance(0.001)
        crew.look()
        assert crew.starts == [(1, False)] * (failures + 1)


def test_pauses_double_up_to_a_bound() -> None:
    """Half a second, one, two, four; at most half a minute, however often it failed."""
    assert [pause_after(failures) for failures in range(1, 5)] == [0.5, 1, 2, 4]
    assert pause_after(7) == pause_after(10_000) == LONGEST_PAUSE_SECONDS


def test_a_long_life_is_no_failure(crew: Played, log: io.StringIO) -> None:
    """Whoever lived long is started again as soon as the first time."""
    for times in (1, 2, 3):
        crew.clock.advance(1)
        crew.look_until_logged(log, "worker started", times)
        crew.clock.advance(STEADY_SECONDS)
        crew.look_until_logged(log, "worker ended", times)
    pauses = [json.loads(line).get("again_in_seconds") for line in log.getvalue().splitlines()]
    assert [pause for pause in pauses if pause is not None] == [0.5, 0.5, 0.5]


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Callable[..., Played]]:
    """Crews of one whose worker was ready, and from then on says nothing."""
    with ExitStack() as stack:

        def begun(**service: object) -> Played:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            crew = Played(1, listener, tmp_path, **service)
            stack.callback(crew.close)
            crew.code = SILENT
            wait_until(lambda: crew.look() or crew._workers[0].ready, 30)
            return crew

        yield begun


def test_a_worker_that_says_nothing_is_killed_and_replaced(silent: Callable[..., Played], log: io.StringIO) -> None:
    """After as long as is set, and a moment to write down where it is; its successor counts it as one that hung."""
    crew = silent(hang_seconds=30)
    crew.look_for(29)
    assert "worker hangs" not in logged(log)
    crew.look_for(1.5)
    assert logged(log).count("worker hangs") == 1
    crew.look_for(ABORT_SECONDS)
    crew.look_until_logged(log, "worker ended", 1)
    crew.clock.advance(pause_after(1))
    crew.look_until(2)
    assert crew.options == [(1, False), (1, True)]


def test_what_was_paused_as_a_whole_kills_nobody(silent: Callable[..., Played], log: io.StringIO) -> None:
    """However long the watcher itself did not look, it counts as a moment."""
    crew = silent(hang_seconds=30)
    for _ in range(5):
        crew.clock.advance(10_000)
        crew.look()
    assert "worker hangs" not in logged(log)


def test_it_can_be_told_to_wait_for_ever(silent: Callable[..., Played], log: io.StringIO) -> None:
    """0 seconds is never: a debugger may hold a worker."""
    crew = silent(hang_seconds=0)
    crew.look_for(4000)
    assert "worker hangs" not in logged(log)


def test_one_that_loads_may_say_nothing(crew: Played, log: io.StringIO) -> None:
    """Only who was ready can hang."""
    crew.code = LOADS
    crew.look_for(4000)
    assert logged(log) == ["worker started"]


def test_none_joins_with_another_bundle(crew: Played, log: io.StringIO, tmp_path: Path) -> None:
    """While one answers with the old one, a successor is not started; once it is put back, it is."""
    (tmp_path / MANIFEST).write_bytes(b"monday")
    crew.code = READY
    crew.look_until(3)
    (tmp_path / MANIFEST).write_bytes(b"tuesday")
    (_, process), *_ = [pair for pair in crew._living() if pair[0].number == 2]
    process.kill()
    crew.look_until_logged(log, "worker ended", 1)
    crew.clock.advance(pause_after(1))
    crew.look()
    told = json.loads(log.getvalue().splitlines()[-1])
    assert (told["event"], told["worker"], len(crew.starts)) == ("worker not started", 2, 3)
    assert f"{tmp_path} is not the bundle that the others answer with" in told["reason"]
    (tmp_path / MANIFEST).write_bytes(b"monday")
    crew.clock.advance(pause_after(2))
    crew.look_until(4)


def test_where_none_answers_all_begin_anew_with_what_is_there(crew: Played, log: io.StringIO, tmp_path: Path) -> None:
    """Nobody has the old one any more: as after a restart."""
    (tmp_path / MANIFEST).write_bytes(b"monday")
    crew.look_until_logged(log, "worker ended", 1)
    (tmp_path / MANIFEST).write_bytes(b"tuesday")
    crew.code = READY
    crew.clock.advance(pause_after(1))
    crew.look_until(4)
    assert "worker not started" not in logged(log)


def test_the_watcher_names_the_manifest_as_bundles_do() -> None:
    """It has the name of its own, so as to stay small."""
    assert MANIFEST == bundle.MANIFEST
