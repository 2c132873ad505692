"""Compiles a graph with AOTInductor, in a process of its own.

So what compiling imports and leaves behind (hundreds of modules, its caches, the compiler's files) never enters a
process that serves. The graph goes to the child through its standard input, and is checked there as everywhere.
"""

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from shared import archive
from shared.compiled import OPTIONS
from shared.errors import EngineUnavailable
from shared.rounding import settle_rounding

_EXAMPLE_ROWS = 3  # as when the graph was exported
_PROGRAM = "from shared.compiling import main; main()"
_MAX_REASON = 300


def compile_graph(graph: bytes, code: Path, work: Path) -> None:
    """Writes the compiled graph to ``code``; what else compilers write is left in ``work``.

    EngineUnavailable says why it could not be.
    """
    root = str(Path(__file__).parents[1])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "TMPDIR": str(work),  # torch's default for its caches is a folder under /tmp, whose name others can guess
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    ended = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-P", "-c", _PROGRAM, str(code)],  # -P: a folder `shared` of the user's is not ours
        input=graph,
        env=environment,
        cwd=work,
        capture_output=True,
        check=False,
    )
    if ended.returncode != 0 or not code.is_file():
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1][:_MAX_REASON] if lines else f"it ended with {ended.returncode}"
        raise EngineUnavailable(f"the graph cannot be compiled on this host: {reason}")


def main() -> None:
    """The child: the graph from standard input, compiled into the file that it is told."""
    settle_rounding()
    torch.set_num_threads(1)
    with warnings.catch_warnings(action="ignore"):  # they speak of torch's own layers
        _compile(sys.stdin.buffer.read(), sys.argv[1])


def _compile(graph: bytes, code: str) -> None:
    from torch._inductor import aot_compile  # noqa: PLC0415 - takes seconds, and only the child needs it

    archive.check(graph)
    program = torch.export.load(io.BytesIO(graph))
    examples = tuple(_example(program, name) for name in program.graph_signature.user_inputs)
    module = program.module(check_guards=False)  # a bundle has none
    aot_compile(module, examples, options={**OPTIONS, "aot_inductor.output_path": code})


def _example(program: Any, name: str) -> torch.Tensor:
    """Rows of zeros: only their shape and type count, and the number of rows stays open."""
    node = next(node for node in program.graph.nodes if node.op == "placeholder" and node.name == name)
    value = node.meta["val"]
    return torch.zeros((_EXAMPLE_ROWS, *value.shape[1:]), dtype=value.dtype)
