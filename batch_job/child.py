"""A run in a process of its own: it can be ended at a deadline, however it hangs, and the schedule lives on."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, BinaryIO

import orjson

from batch_job.outcome import BUSY, DONE, FAILED, HELD, OUTCOMES, STOPPED, TIMED_OUT, Outcome
from shared.clock import Clock
from shared.errors import EXIT_HELD
from shared.processes import end

_MAX_OUTPUT_BYTES = 1024**2


class Child:
    """Runs one command at a time. Its last line of output is a JSON object that says what became of it."""

    def __init__(self, *, deadline: float, stop_seconds: float, stopwatch: Clock) -> None:
        self._deadline = deadline
        self._stop_seconds = stop_seconds
        self._stopwatch = stopwatch
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = Lock()

    def run(self, command: Sequence[str]) -> Outcome:
        """Starts it and waits until it has ended by itself, by its deadline, or because of ``stop``."""
        started = self._stopwatch.now()
        with tempfile.TemporaryFile() as output:
            process = self._start(command, output)
            if process is None:
                return Outcome(kind=STOPPED)
            timed_out = False
            try:
                process.wait(self._deadline)
            except subprocess.TimeoutExpired:
                timed_out = True
                end(process, self._stop_seconds)
            with self._lock:
                self._process = None
            facts = _last_line(output)
        seconds = self._stopwatch.now() - started
        if self._stopped:
            return Outcome(kind=STOPPED, seconds=seconds)
        if timed_out:
            reason = f"it was ended after {self._deadline:g} s, FORESCORE_SCHEDULE__RUN_DEADLINE_SECONDS"
            return Outcome(kind=TIMED_OUT, reason=reason, seconds=seconds)
        return _outcome(process.returncode, facts, seconds)

    def stop(self) -> None:
        """Ends the run that is at work, in good order if it can, and begins none any more."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None:
            end(process, self._stop_seconds)

    def _start(self, command: Sequence[str], output: BinaryIO) -> "subprocess.Popen[bytes] | None":
        with self._lock:
            if self._stopped:
                return None
            # in a session of its own: Ctrl-C is for the schedule, and a kill reaches all that the run started
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, start_new_session=True)  # noqa: S603 - this program
            return self._process


def _outcome(code: int, facts: Mapping[str, Any], seconds: float) -> Outcome:
    told = facts.get("outcome")
    if code == 0:
        return Outcome(kind=told if told in OUTCOMES else DONE, seconds=seconds, report=dict(facts))
    if code == EXIT_HELD:
        return Outcome(kind=HELD, reason=facts.get("reason"), seconds=seconds, report=dict(facts))
    reason = facts.get("reason") or (f"it ended with {code}" if code > 0 else f"it was killed by signal {-code}")
    return Outcome(kind=BUSY if told == BUSY else FAILED, reason=reason, seconds=seconds, report=dict(facts))


def _last_line(output: BinaryIO) -> dict[str, Any]:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _MAX_OUTPUT_BYTES))
    lines = output.read().strip().splitlines()
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(lines[-1]) if lines else {}
        if isinstance(found, dict):
            return found
    return {}
