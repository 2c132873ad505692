"""The doctor, and a server of one's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Command
from support.doctor import Doctor
from support.servers import ValkeyProcess, start_valkey


@pytest.fixture
def doctor(command: Command, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    return Doctor(command, namespace, monkeypatch)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyProcess]:
    """A server that the test may spoil."""
    with start_valkey(tmp_path) as process:
        yield process
