import json
import os
import subprocess
import sys
from functools import cache

import pytest

LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"


@cache
def loaded(code: str) -> frozenset[str]:
    """The modules of a fresh interpreter that has run the code."""
    done = subprocess.run([sys.executable, "-c", f"{code}\n{LOADED}"], capture_output=True, text=True, check=True)
    return frozenset(json.loads(done.stdout.splitlines()[-1]))


def processor_seconds(code: str) -> float:
    """What a fresh interpreter takes to run the code, however busy the machine is."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


@pytest.mark.parametrize("module", ["pyarrow.dataset", "apscheduler", "batch_job"])
def test_the_service_does_without_the_batch_job(module: str) -> None:
    """Importing the service loads neither the table readers nor the scheduler."""
    assert module not in loaded("import service.app")


@pytest.mark.parametrize(
    "module", ["torch", "numpy", "pyarrow", "pydantic", "pydantic_settings", "redis", "fastapi", "structlog", "asyncio"]
)
def test_the_help_comes_at_once(module: str) -> None:
    """The help text waits for none of the large libraries."""
    assert module not in loaded("import forescore; forescore.run(['--help'])")


def test_the_help_costs_little_more_than_its_printer() -> None:
    """In processor time, the help takes at most twice what importing the libraries takes that print it."""
    printer, ours = [], []
    for _ in range(3):  # side by side: the machine may be busy with other things
        printer.append(processor_seconds("import typer.rich_utils, rich.table, rich.columns"))
        ours.append(processor_seconds("import forescore; forescore.run(['--help'])"))
    assert min(ours) < 2 * min(printer)


@pytest.mark.parametrize("module", ["torch", "pyarrow", "fastapi", "batch_job", "service"])
def test_importing_the_package_is_cheap(module: str) -> None:
    """Importing ``forescore`` loads a name's home only when the name is asked for."""
    assert module not in loaded("import forescore")


@pytest.mark.parametrize("package", ["shared", "batch_job", "service"])
def test_importing_a_package_does_nothing(package: str) -> None:
    """A package's ``__init__`` is a map and loads no module."""
    assert {module for module in loaded(f"import {package}") if module.startswith(f"{package}.")} == set()
