"""Engines: how a graph is run. Opening one gives a ``Forward``; nothing else knows what is behind it.

``export``    the exported program as it lies in the bundle: always there, on every device
``compiled``  the same graph, compiled once for this host, from this host's cache (``shared.compiled``): many times
              faster for one row, on the CPU

Each is certified with the golden rows. Which one it is, is settled when a scorer is opened, and never changes in it.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch

from shared.bundle import GRAPH, Bundle
from shared.compiled import code_key
from shared.engine_cache import EngineCache
from shared.errors import BundleCorrupt, DeviceUnavailable, EngineUnavailable, ScoringError
from shared.host import compiler
from shared.rounding import settle_rounding
from shared.settings import Settings
from shared.tile import Arrays, Forward

Engine = Literal["export", "compiled"]
Wanted = Literal["auto", "export", "compiled"]

_DTYPES = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool}


def choose_device(device: str) -> torch.device:
    """The device of a setting: ``auto`` (CUDA where there is one), ``cpu``, ``cuda``, ``cuda:N``."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return torch.device("cuda:0" if count else "cpu")
    kind, _, number = device.partition(":")
    index = int(number) if number.isdecimal() else 0
    if kind == "cpu" and not number:
        return torch.device("cpu")
    if kind == "cuda" and (not number or number.isdecimal()) and index < count:
        return torch.device("cuda", index)
    there = ", ".join(["cpu", *(f"cuda:{place}" for place in range(count))])
    raise DeviceUnavailable(f"device {device!r} is not there; this machine has: {there}")


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


def find_compiled(bundle: Bundle, device: torch.device, choice: EngineChoice) -> Path:
    """The bundle's compiled graph in this host's cache. EngineUnavailable says why there is none, and what to do."""
    _require_cpu(device)
    code = EngineCache(choice.cache).find(code_key(bundle.digest, str(device)))
    if code is None:
        raise EngineUnavailable(
            f"{choice.cache} has no graph of {bundle.name} {bundle.version} that was compiled for this host; "
            f"run: forescore bundle compile {bundle.path}"
        )
    return code


def compile_bundle(bundle: Bundle, device: torch.device, choice: EngineChoice) -> Path:
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
        "torch": torch.__version__,
    }
    return EngineCache(choice.cache).make(code_key(bundle.digest, str(device)), note, fill)


def _require_cpu(device: torch.device) -> None:
    if device.type != "cpu":
        raise EngineUnavailable(f"on {device} the exported graph is run; the engine `compiled` is for the CPU")


def open_export(graph: bytes, device: torch.device) -> Forward:
    """The exported graph as a callable on that device. BundleCorrupt when it holds anything but a graph."""
    from shared import archive  # noqa: PLC0415 - what reads exported programs takes seconds to import

    settle_rounding()
    archive.check(graph)
    try:
        program = torch.export.load(io.BytesIO(graph))
        if device.type != "cpu":
            from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - brings what compiles for it

            program = move_to_device_pass(program, device)
    except Exception as error:  # torch raises what its parts raise; whatever it is, the graph cannot be used
        raise BundleCorrupt(
            f"graph.pt2 cannot be loaded by torch {torch.__version__} ({type(error).__name__})"
        ) from error
    state = {**program.state_dict, **program.constants}
    lifted = [state[spec.target].detach() for spec in program.graph_signature.input_specs if spec.target is not None]
    module = program.graph_module

    def forward(inputs: Arrays) -> np.ndarray:
        # the graph module is called as it is: program.module() would check again, in half a millisecond a call,
        # what the encoder and the schema have settled
        torch.get_num_threads()  # tells it to this very thread, see shared.compiled
        try:
            with torch.inference_mode():
                tensors = [_placed(part, device) for part in inputs]
                (scores,) = module(*lifted, *tensors)
                return scores.cpu().numpy()  # type: ignore[no-any-return]
        except Exception as error:  # noqa: BLE001 - the graph is the user's: any error is its failure for these rows
            # only the type is told: torch's texts quote values
            raise ScoringError(f"the forward pass of {len(inputs[0])} rows failed ({type(error).__name__})") from None

    return forward


def _placed(part: np.ndarray, device: torch.device) -> torch.Tensor:
    """A copy in memory of torch's own: always aligned alike, as products may round by alignment, and safe to write."""
    return torch.empty(part.shape, dtype=_DTYPES[part.dtype.name], device=device).copy_(torch.from_numpy(part))
