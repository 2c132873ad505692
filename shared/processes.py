"""Processes that belong together: started, watched and ended as one. If one of them ends by itself, all do."""

import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread

from shared.errors import PartEnded

INTERRUPTED = 130

_URL = re.compile(r"https?://[^/\s]+")
_POLL_SECONDS = 0.1
_PROBE_SECONDS = 5
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # they answer on this machine


class Ending:
    """Set by SIGTERM and by Ctrl-C. ``code`` is then what the process exits with: 0 as it was told to, or 130.

    ``numbers`` are the signals heard, in order: a second one means haste.
    """

    def __init__(self) -> None:
        self.event = Event()
        self.code = 0
        self.numbers: list[int] = []

    def hear(self, number: int, _frame: object) -> None:
        """The signal handler."""
        self.code = INTERRUPTED if number == signal.SIGINT else 0
        self.numbers.append(number)
        self.event.set()


@contextmanager
def heard() -> Iterator[Ending]:
    """Hears the two signals for the block. For the main thread."""
    ending = Ending()
    before = {number: signal.signal(number, ending.hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Tells a process that leads its session to end; kills it, and all that it started, after so many seconds."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process. It prints the URL at which it answers; it is ready when ``probe``, a path there, says 200."""

    name: str
    command: Sequence[str]
    probe: str
    environment: Mapping[str, str]


def together(
    parts: Sequence[Part],
    ready: Callable[[Mapping[str, str]], object],
    *,
    stop_seconds: float,
    said: Callable[[str], object],
) -> int:
    """Runs them until SIGTERM (0) or Ctrl-C (130). ``ready`` is told once the URL of each, by name; ``said`` each line.

    PartEnded names the one that ended by itself; the others were ended then.
    """
    with ExitStack() as stack:
        ending = stack.enter_context(heard())
        running = [_Running(part, said) for part in parts]
        stack.callback(_end_all, running, stop_seconds)
        for process in running:
            process.start()
        told = False
        while not ending.event.wait(_POLL_SECONDS):
            _require_alive(running)
            if not told and all(process.is_ready() for process in running):
                told = True
                ready({process.part.name: process.url or "" for process in running})
        return ending.code


def _require_alive(running: "Sequence[_Running]") -> None:
    for process in running:
        if (code := process.poll()) is not None:
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            raise PartEnded(f"the {process.part.name} ended by itself, with {how}; so everything was stopped")


def _end_all(running: "Sequence[_Running]", seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in running:
        process.terminate()
    for process in running:
        process.end(max(0.1, deadline - time.monotonic()))


class _Running:
    def __init__(self, part: Part, said: Callable[[str], object]) -> None:
        self.part = part
        self._said = said
        self.url: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = Thread(target=self._read, name=part.name, daemon=True)
        self._is_ready = False

    def start(self) -> None:
        """In a session of its own: Ctrl-C is for the whole, which then ends each in good order."""
        self._process = subprocess.Popen(  # noqa: S603 - this program's own commands
            list(self.part.command),
            env={**os.environ, **self.part.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._reader.start()

    def poll(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def is_ready(self) -> bool:
        if not self._is_ready and self.url is not None:
            with suppress(OSError), _OPENER.open(self.url + self.part.probe, timeout=_PROBE_SECONDS):
                self._is_ready = True
        return self._is_ready

    def terminate(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def end(self, seconds: float) -> None:
        if self._process is not None:
            end(self._process, seconds)
            self._reader.join(seconds)

    def _read(self) -> None:
        """Passes on what it prints, and finds its URL in there."""
        if self._process is None or self._process.stdout is None:
            return
        with self._process.stdout as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip("\n")
                self._said(f"{self.part.name}: {text}")
                if self.url is None and (found := _URL.search(text)):
                    self.url = found[0]
