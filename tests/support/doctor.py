"""``forescore doctor`` for tests: what it found, by check."""

import json
from typing import Any

import pytest
from support.command import Command

from batch_job.doctor.finding import Level


class Doctor:
    """Calls the command with ``--json`` and keeps what it found."""

    def __init__(self, command: Command, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._command = command
        self._set = monkeypatch.setenv
        self._set("FORESCORE_REDIS__NAMESPACE", namespace)
        self.found: dict[str, list[dict[str, str]]] = {}

    def __call__(self, url: str | None, *arguments: object) -> int:
        if url is not None:
            self._set("FORESCORE_REDIS__URL", url)
        code = self._command("doctor", "--json", *arguments)
        assert self._command.out.startswith("{"), self._command.err
        told: dict[str, Any] = json.loads(self._command.out)
        assert told["exit_code"] == code
        self.found = {}
        for finding in told["findings"]:
            assert set(finding) == {"check", "level", "looked_at", "found", "next_step"}
            assert all(isinstance(text, str) and "\n" not in text for text in finding.values())
            self.found.setdefault(finding["check"], []).append(finding)
        return code

    def level(self, check: str) -> str:
        """The worst of a check's findings."""
        order = [level.value for level in Level]
        return max((finding["level"] for finding in self.found[check]), key=order.index)

    def text(self, check: str) -> str:
        return " ".join(f"{finding['found']} -> {finding['next_step']}" for finding in self.found[check])
