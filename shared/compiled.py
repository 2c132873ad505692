"""The engine ``compiled``: the bundle's graph, compiled by AOTInductor for this host, from this host's own cache.

Opening it needs nothing of torch but its library: not the Python package, which takes seconds to import. Compiling is
done by ``shared.compiling``, in a process of its own.
https://docs.pytorch.org/docs/stable/torch.compiler_aot_inductor.html
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shared.container import Container
from shared.errors import EngineUnavailable, ScoringError
from shared.host import processor
from shared.libtorch import torch_build
from shared.packing import RowPacking
from shared.rounding import settle_rounding
from shared.row_reader import Line
from shared.tile import FORWARD_ROWS, Arrays, Forward

FORMAT = 1
"""Changed when code that was compiled before must not be used any more."""

OPTIONS: Mapping[str, object] = {
    # one thread: the passes are small, and several of them run side by side
    "cpp.threads": 1,
    # a header compiled in advance would be looked for in a folder that other bundles share; and each is used but once,
    # so that it costs a third of all the time that compiling takes
    "cpp_cache_precompile_headers": False,
    "aot_inductor.precompile_headers": False,
    # the processor says which vectors it has; to try that by compiling a program takes seconds
    "cpp.vec_isa_ok": True,
    # for profilers
    "aot_inductor.enable_line_tables": False,
}
"""What AOTInductor is told, besides where to write."""

_INSTANCES = max(1, min(os.cpu_count() or 1, 16))
"""How many passes may run at once. They share the weights."""


def code_key(bundle_digest: str, device: str) -> str:
    """Names all that compiled code depends on: the bundle, torch, the processor, the device, how it is compiled."""
    vectors = os.environ.get("ATEN_CPU_CAPABILITY", "")  # else as the processor has them
    parts = (FORMAT, bundle_digest, *torch_build(), vectors, processor(), device, FORWARD_ROWS, sorted(OPTIONS.items()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class CompiledGraph:
    """The compiled graph as a ``Forward``, with a shorter way for one row."""

    __slots__ = ("_container",)

    def __init__(self, container: Container) -> None:
        self._container = container

    def __call__(self, inputs: Arrays) -> np.ndarray:
        try:
            return self._container(inputs)
        except Exception as error:  # noqa: BLE001 - the graph is the user's: any error is its failure for these rows
            raise _failure(len(inputs[0]), error) from None

    def repeated(self, line: Line, packing: RowPacking) -> np.ndarray:
        """What a call with this row in every place of a tile gives: no arrays need be made for it."""
        try:
            return self._container.repeated(line, packing)
        except Exception as error:  # noqa: BLE001 - the same
            raise _failure(packing.tile, error) from None


def open_compiled(code: Path) -> Forward:
    """The compiled graph as a callable. EngineUnavailable when this torch cannot load it."""
    settle_rounding()
    try:
        return CompiledGraph(Container(code, _INSTANCES))
    except (OSError, AttributeError, RuntimeError) as error:
        raise EngineUnavailable(
            f"the compiled graph {code.name[:12]} cannot be loaded by torch {torch_build()[0]} "
            f"({type(error).__name__}); remove it from {code.parent}, and compile it again"
        ) from error


def _failure(rows: int, error: Exception) -> ScoringError:
    """Only the type is told: torch's texts quote values."""
    return ScoringError(f"the forward pass of {rows} rows failed ({type(error).__name__})")
