"""Engines: how a graph is run. Opening one gives a ``Forward``; nothing else knows what is behind it.

``export``    the exported program as it lies in the bundle: always there, on every device (``shared.exported``)
``compiled``  the same graph, compiled once for this host, from this host's cache (``shared.compiled``): many times
              faster for one row, on the CPU

Each is certified with the golden rows. Which one it is, is settled when a scorer is opened, and never changes in it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from shared.bundle import GRAPH, Bundle
from shared.compiled import code_key
from shared.engine_cache import EngineCache
from shared.errors import DeviceUnavailable, EngineUnavailable
from shared.host import compiler
from shared.libtorch import has_accelerators, torch_build
from shared.settings import Settings

Engine = Literal["export", "compiled"]
Wanted = Literal["auto", "export", "compiled"]


def choose_device(device: str) -> str:
    """The device of a setting: ``auto`` (CUDA where there is one), ``cpu``, ``cuda``, ``cuda:N``."""
    if device == "cpu":
        return device
    count = _cuda_devices()
    if device == "auto":
        return "cuda:0" if count else "cpu"
    kind, _, number = device.partition(":")
    index = int(number) if number.isdecimal() else 0
    if kind == "cuda" and (not number or number.isdecimal()) and index < count:
        return f"cuda:{index}"
    there = ", ".join(["cpu", *(f"cuda:{place}" for place in range(count))])
    raise DeviceUnavailable(f"device {device!r} is not there; this machine has: {there}")


def _cuda_devices() -> int:
    if not has_accelerators():
        return 0
    import torch  # noqa: PLC0415 - seconds, which a process that only runs on CPUs need not spend

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """Which engine a scorer is to have, and where compiled graphs are kept.

    ``compiled``: compiled first if need be, or refused. ``auto``: compiled where the cache has it, else export. It
    compiles nothing by the way: a service starts at once, and all processes of a host run the same engine.
    """

    wanted: Wanted = "export"
    cache: Path = Path(".forescore", "engines")

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say."""
        return cls(wanted=settings.engine, cache=settings.engine_cache or settings.home / "engines")


def find_compiled(bundle: Bundle, device: str, choice: EngineChoice) -> Path:
    """The bundle's compiled graph in this host's cache. EngineUnavailable says why there is none, and what to do."""
    _require_cpu(device)
    code = EngineCache(choice.cache).find(code_key(bundle.digest, device))
    if code is None:
        raise EngineUnavailable(
            f"{choice.cache} has no graph of {bundle.name} {bundle.version} that was compiled for this host; "
            f"run: forescore bundle compile {bundle.path}"
        )
    return code


def compile_bundle(bundle: Bundle, device: str, choice: EngineChoice) -> Path:
    """The bundle's compiled graph, compiled if the cache has none: 10 to 60 seconds, once for a host.

    EngineUnavailable says what is missing.
    """
    from shared.compiling import compile_graph  # noqa: PLC0415 - only where something is compiled

    _require_cpu(device)

    def fill(code: Path, work: Path) -> None:
        if compiler() is None:
            raise EngineUnavailable(
                "this host has no C++ compiler, which the engine `compiled` needs once; install g++, or bring an "
                "engine cache of a host of the same kind"
            )
        compile_graph(bundle.read(GRAPH), code, work)

    note = {
        "model": bundle.name,
        "model_version": bundle.version,
        "bundle_digest": bundle.digest,
        "torch": torch_build()[0],
    }
    return EngineCache(choice.cache).make(code_key(bundle.digest, device), note, fill)


def _require_cpu(device: str) -> None:
    if device != "cpu":
        raise EngineUnavailable(f"on {device} the exported graph is run; the engine `compiled` is for the CPU")
