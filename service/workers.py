"""Several workers on one socket, and the process that watches over them: starts, replaces and ends them.

One socket, opened once, which all of them listen on: what waits to be taken is taken by any of them, so that no
connection is lost with one that dies. uvicorn's own supervisor can neither tell a worker its number, which its
metrics need, nor pause before it starts one again, nor bound its wait at the end.

A worker that loads would refuse score calls while others answer them. So the first one opens alone, and answers probes
from its first moment; the others take no connection before they are ready. This process stays small: it loads neither
torch nor the model.

A worker that is ready says so again and again, from its event loop. One that says nothing for long hangs: it is told to
write down where it is, killed, and replaced. Silence is counted only while this process looks, so that a machine that
was suspended, or paused as a whole, kills nobody; and only of workers that are ready, since loading has no bound.

All of them have the bundle that the first one found. Where another lies in its place while one answers with the old
one, none is started with the new one: two answers to one question would be of two models.
"""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from service import worker_metrics
from service.threads import pass_threads
from shared.clock import Clock, MonotonicClock
from shared.embedded import embedded_store
from shared.processes import Ending, heard
from shared.settings import Settings
from shared.telemetry import Logger, configure_logging

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""A worker that lived so long was well: what ended it is no reason to wait longer than the first time."""
LOADING_SECONDS = 0.5
"""How long the end waits for workers that only load, a thing that cannot be broken off: no call is with them."""
CLOSING_SECONDS = 10
"""How long a worker may take to close what it opened."""
POLL_SECONDS = 0.1
MANIFEST = "bundle.json"
"""As ``shared.bundle`` has it, which is more than this process loads."""
MOST_COUNTED_SECONDS = 0.5
"""The most of a worker's silence that one look counts: longer ago this process itself may not have run."""
ABORT_SECONDS = 1
"""How long a worker that hangs has to write down where, before it is killed."""

_log: Logger = structlog.get_logger()


def watch_over(settings: Settings, listener: socket.socket, said: Callable[[], object]) -> int:
    """Runs the workers until SIGTERM (0) or Ctrl-C (130). ``said`` is called once they are being started."""
    configure_logging(settings, sys.stderr)
    with ExitStack() as stack:
        ending = stack.enter_context(heard())
        if settings.redis.url is None:
            stack.enter_context(embedded_store(settings.home))  # its last user stops it, and no worker must be that
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forescore-metrics-")))
        crew = Crew(settings, listener, folder, MonotonicClock())
        stack.callback(crew.close)
        said()
        while not ending.event.wait(POLL_SECONDS):
            crew.look()
        listener.close()  # the workers still listen; this process must not be the one that holds the port open
        crew.end(ending)
        return ending.code


@dataclass(slots=True)
class Worker:
    """One place among the workers, and the process that fills it, one after the other."""

    number: int
    process: "subprocess.Popen[bytes] | None" = None
    channel: socket.socket | None = None
    ready: bool = False
    silent: float = 0.0
    aborted: float | None = None
    hung: bool = False
    started: float = 0.0
    failures: int = 0
    due: float = 0.0

    def note(self, passed: float = 0.0) -> None:
        """Hears whether its event loop runs, which it says from when it is ready; ``passed``: seconds since the last
        time."""
        self.silent += min(passed, MOST_COUNTED_SECONDS)
        with suppress(BlockingIOError):
            while self.channel is not None and self.channel.recv(4096):
                self.ready, self.silent = True, 0.0


class Crew:
    """All workers. Nothing runs before the first ``look``."""

    def __init__(self, settings: Settings, listener: socket.socket, folder: Path, clock: Clock) -> None:
        self._settings = settings
        self._listener = listener
        self._folder = folder
        self._clock = clock
        self._workers = [Worker(number) for number in range(1, settings.service.workers + 1)]
        self._looked = clock.now()
        self._bundle: str | None = None

    def look(self) -> None:
        """Sees which are ready, which hang and which have died, and starts those that are due."""
        now = self._clock.now()
        passed, self._looked = now - self._looked, now
        for worker in self._workers:
            worker.note(passed)
            if worker.process is not None and (code := worker.process.poll()) is not None:
                self._bury(worker, code)
            else:
                self._end_if_it_hangs(worker)
        answered = any(worker.ready for worker in self._workers)
        for worker in self._workers if answered else self._workers[:1]:
            if worker.process is None and now >= worker.due and self._has_its_bundle(worker, answered=answered):
                self._start(worker, opens_first=answered)

    def end(self, ending: Ending) -> None:
        """Passes each signal on, and waits; kills what is still there when every bound is passed."""
        service = self._settings.service
        told = self._clock.now()
        patience = service.drain_seconds + service.flight_seconds + CLOSING_SECONDS
        passed_on = 0
        while living := self._living():
            for number in ending.numbers[passed_on:]:
                for _, process in living:
                    process.send_signal(number)
                passed_on += 1
            waited = self._clock.now() - told
            if waited >= patience or (waited >= LOADING_SECONDS and not any(worker.ready for worker, _ in living)):
                _log.info("workers killed", workers=len(living), waited_seconds=round(waited, 1))
                self.kill()
            for worker, _ in living:
                worker.note()
            with suppress(subprocess.TimeoutExpired):
                living[0][1].wait(POLL_SECONDS)

    def kill(self) -> None:
        """Ends what still runs at once."""
        for _, process in self._living():
            process.kill()
            process.wait()

    def close(self) -> None:
        """Ends what still runs, and closes what is open to it."""
        self.kill()
        for worker in self._workers:
            if worker.channel is not None:
                worker.channel.close()

    def _end_if_it_hangs(self, worker: Worker) -> None:
        bound, now = self._settings.service.hang_seconds, self._clock.now()
        if worker.process is None or not worker.ready:
            return
        if worker.aborted is not None:
            if now - worker.aborted >= ABORT_SECONDS:
                worker.process.kill()
        elif 0 < bound <= worker.silent:
            pid, silent = worker.process.pid, round(worker.silent, 1)
            _log.error("worker hangs", worker=worker.number, pid=pid, silent_seconds=silent)
            worker.aborted, worker.hung = now, True
            worker.process.send_signal(signal.SIGABRT)

    def _has_its_bundle(self, worker: Worker, *, answered: bool) -> bool:
        """Whether the bundle is the one that those have who answer; where none does, all begin anew with what is
        there."""
        found = _digest(self._settings.bundle)
        if not answered:
            self._bundle = found
        elif found != self._bundle:
            worker.failures += 1
            worker.due = self._clock.now() + (pause := pause_after(worker.failures))
            _log.error(
                "worker not started",
                worker=worker.number,
                again_in_seconds=pause,
                reason=f"{self._settings.bundle} is not the bundle that the others answer with; put that back, or "
                "restart the service",
            )
        return found == self._bundle

    def _living(self) -> "list[tuple[Worker, subprocess.Popen[bytes]]]":
        filled = [(worker, worker.process) for worker in self._workers if worker.process is not None]
        return [(worker, process) for worker, process in filled if process.poll() is None]

    def _start(self, worker: Worker, *, opens_first: bool) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            worker.process = subprocess.Popen(  # noqa: S603 - this program's own code
                self._command(worker, theirs, opens_first=opens_first),
                env={**os.environ, **self._environment()},
                pass_fds=[self._listener.fileno(), theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process, which then ends each in good order
            )
        worker.channel, worker.ready, worker.started, worker.hung = ours, False, self._clock.now(), False
        _log.info("worker started", worker=worker.number, pid=worker.process.pid)

    def _command(self, worker: Worker, channel: socket.socket, *, opens_first: bool) -> Sequence[str]:
        return [
            *(sys.executable, "-P", "-m", "service.worker", "--number", str(worker.number)),
            *("--listener", str(self._listener.fileno()), "--channel", str(channel.fileno())),
            *("--metrics", str(self._folder)),
            *(["--opens-first"] if opens_first else []),
            *(["--replaces"] if worker.failures else []),
            *(["--hung"] if worker.hung else []),
        ]

    def _environment(self) -> dict[str, str]:
        """What the command line said over the environment, and what a process reads once, when it starts."""
        threads = str(pass_threads(self._settings))
        return {
            "FORESCORE_BUNDLE": str(self._settings.bundle),
            "FORESCORE_FEATURES__URL": self._settings.features.url.get_secret_value(),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # it imports from where this process does
        }

    def _bury(self, worker: Worker, code: int) -> None:
        """Makes room for the next: soon, but later each time if they die young."""
        now = self._clock.now()
        worker.failures = 1 if now - worker.started >= STEADY_SECONDS else worker.failures + 1
        pause = pause_after(worker.failures)
        how = {"code": code} if code >= 0 else {"signal": -code}
        _log.warning("worker ended", worker=worker.number, was_ready=worker.ready, again_in_seconds=pause, **how)
        worker_metrics.forget(self._folder, worker.number)
        if worker.channel is not None:
            worker.channel.close()
        worker.process, worker.channel, worker.ready, worker.due = None, None, False, now + pause
        worker.aborted, worker.silent = None, 0.0


def _digest(bundle: Path | None) -> str | None:
    """The bundle's digest; None where there is none, which whoever loads it says better."""
    with suppress(OSError):
        return None if bundle is None else hashlib.sha256((bundle / MANIFEST).read_bytes()).hexdigest()
    return None


def pause_after(failures: int) -> float:
    """Seconds until a worker is started again: half a second, twice as long each time, half a minute at most."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** (min(failures, 16) - 1), LONGEST_PAUSE_SECONDS)
