"""Commands that start within milliseconds, as processes of their own: see the script."""

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from support.servers import wait_until

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("warm_commands.py")


class WarmProcess:
    """One that was started; it is asked and told as a ``subprocess.Popen`` is."""

    def __init__(self, server: "WarmServer", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._asking = Lock()

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with self._asking:  # an end is told once
            if self.returncode is None:
                self.returncode = self._server.say({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        wait_until(lambda: self.poll() is not None, 3600 if timeout is None else timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """It keeps its id until its end has been asked for, so that the signal is for nobody else."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class WarmServer:
    """The process that starts them; it ends with this one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )

    def start(self, arguments: list[str], environment: Mapping[str, str], output: Path, errors: Path) -> WarmProcess:
        """Calls ``forescore`` with that environment and no other; what it prints goes to the files, which are there."""
        order = {"arguments": arguments, "environment": dict(environment)}
        return WarmProcess(self, self.say({"start": {**order, "output": str(output), "errors": str(errors)}}))

    def say(self, words: dict[str, Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            print(json.dumps(words), file=stdin, flush=True)
            told = stdout.readline()
        assert told, "the process that starts warm commands has ended; what it said of it is on standard error"
        return json.loads(told)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


@cache
def warm_server() -> WarmServer:
    """The one of this process, once a test has asked for it."""
    server = WarmServer()
    atexit.register(server.close)
    return server
