"""``forescore`` as a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).parents[2]


class CommandProcess:
    """One command, with what it prints in files."""

    def __init__(self, folder: Path, environment: Mapping[str, str], arguments: list[str]) -> None:
        folder.mkdir(parents=True)
        self._output, self._errors = folder / "out", folder / "err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forescore", *arguments],
                stdout=output,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, **environment},
            )

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    @property
    def output(self) -> str:
        return self._output.read_text()

    def readiness(self) -> dict[str, Any]:
        """What /readyz says; empty while it does not answer."""
        url = next((word for word in self.output.split() if word.startswith("http://")), None)
        try:
            return {} if url is None else dict(httpx2.get(url, timeout=10).json())
        except httpx2.TransportError:
            return {}

    def is_ready(self) -> bool:
        return self.readiness().get("status") == "ready"

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.code()

    def code(self) -> int:
        return self.process.wait(timeout=300)

    def kill(self) -> None:
        """Ends it whatever it does; nothing happens if it has ended."""
        self.process.kill()
        self.code()
