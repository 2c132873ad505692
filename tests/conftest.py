"""What every test may ask for: a real server, and a corner of it that no other test sees."""

import gc
import os
from collections.abc import Iterator
from uuid import uuid4

import hypothesis
import pytest
import structlog
from pydantic import SecretStr
from support.servers import ValkeyProcess, start_valkey

from shared.rounding import settle_rounding
from shared.settings import RedisSettings

settle_rounding()  # before any test makes the process's first matrix product

hypothesis.settings.register_profile("forescore", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("forescore")


FIRST = ("process", "docs", "fuzz", "examples")
"""The folders of long files: they begin while there is other work to do beside them, and none is left at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders the folders; within one, the tests stay as they are."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    folder = item.nodeid.split("/")[1]
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: each full collection of garbage would look at all of torch again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting of the machine reaches a test, and no test's logging reaches the next."""
    for name in list(os.environ):
        if name.startswith("FORESCORE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FORESCORE_ENGINE", "export")  # compiling takes a minute: the engine's own tests do it once
    monkeypatch.setenv("FORESCORE_BATCH__NICE", "0")  # commands run in this very process, which would not get back
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """One server for all tests. A test that stops or pauses a server starts its own."""
    with start_valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def namespace() -> str:
    """The first part of this test's keys."""
    return f"t{uuid4().hex[:16]}"


@pytest.fixture
def redis_settings(valkey: ValkeyProcess, namespace: str) -> RedisSettings:
    return RedisSettings(url=SecretStr(valkey.url), namespace=namespace)
