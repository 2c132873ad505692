"""Where it was measured, and with which versions."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.bench import load_average
from benchmarks.load import tool
from benchmarks.results import Machine
from shared.embedded import valkey_binary

_PACKAGES = ("forescore", "torch", "numpy", "pyarrow", "fastapi", "uvicorn", "redis", "hiredis", "litserve", "bentoml")


def machine(load_at_start: float) -> Machine:
    """The facts, at the end of a run that began with this load."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 0,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3, 1),
        system=f"{platform.system()} {platform.machine()}",
        versions=_versions(),
        load=tool(),
        load_average_start=load_at_start,
        load_average_end=load_average(),
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    told = subprocess.run([str(valkey_binary()), "--version"], capture_output=True, text=True, check=True).stdout
    found["valkey"] = next((word.removeprefix("v=") for word in told.split() if word.startswith("v=")), "unknown")
    return found
