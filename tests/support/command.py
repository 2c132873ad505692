"""The command ``forescore``, as a user calls it, in this process."""

import json

import pytest

import forescore


class Command:
    """Calls ``forescore`` and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: object) -> int:
        code = forescore.run([str(argument) for argument in arguments])
        printed = self._capsys.readouterr()
        self.out, self.err = printed.out, printed.err
        return code

    def json(self) -> dict[str, object]:
        """The last line, read."""
        read: dict[str, object] = json.loads(self.out.splitlines()[-1])
        return read

    def told(self, label: str) -> str:
        """What stands behind a label."""
        return next(line[len(label) :].strip() for line in self.out.splitlines() if line.startswith(label + " "))
