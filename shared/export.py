"""Exports a scoring graph into the bytes of ``graph.pt2``: only what a scorer needs, and nothing about this machine."""

import copy
import io
import warnings

import torch
from torch import nn

from shared import archive
from shared.errors import BundleCorrupt, BundleError, WrongShape
from shared.fitted import Fitted
from shared.graph import ScoringGraph, check_activation
from shared.tile import FORWARD_ROWS, Arrays

_EXAMPLE_ROWS = 3  # not 1, which torch would take as fixed


def export_graph(fitted: Fitted, module: nn.Module, inputs: Arrays) -> bytes:
    """The bytes of ``graph.pt2``, with a dynamic number of rows. BundleError says why the module cannot be exported."""
    require_eval(module)
    check_activation(fitted.schema, module)
    graph = ScoringGraph(fitted, copy.deepcopy(module).cpu()).eval().requires_grad_(requires_grad=False)
    rows = torch.export.Dim("rows", min=1, max=FORWARD_ROWS)
    example = tuple(torch.from_numpy(part[:_EXAMPLE_ROWS].copy()) for part in inputs)
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):  # they speak of torch's own layers
            program = torch.export.export(graph, example, dynamic_shapes={"inputs": tuple({0: rows} for _ in example)})
    except WrongShape as error:
        raise BundleError(str(error)) from None
    except Exception as error:  # torch raises what the user's forward raises; all of it means the same here
        raise BundleError(_why(error)) from error
    data = _saved(program)
    try:
        archive.check(data)
    except BundleCorrupt as error:
        raise BundleError(f"the module cannot be bundled: {error}") from None
    return data


def require_eval(module: nn.Module) -> None:
    """Refuses a module that is, anywhere in it, in training mode."""
    for name, part in module.named_modules():
        if part.training:
            where = f"its part {name!r}" if name else "it"
            raise BundleError(f"the module is in training mode ({where}); call module.eval() before building")


def _saved(program: torch.export.ExportedProgram) -> bytes:
    """The archive without what is not needed to score: stack traces, example rows, guards for other callers.

    torch would evaluate guards as Python and unpickle example rows; ``shared.archive`` refuses archives that have any.
    An exported program has no public way to leave them out.
    """
    for node in program.graph.nodes:
        for name in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom"):
            node.meta.pop(name, None)
    program.graph_module.meta.pop("custom", None)
    program._guards_code = []  # noqa: SLF001 - see above
    program._example_inputs = None  # noqa: SLF001 - see above
    program._module_call_graph = [entry for entry in program.module_call_graph if not entry.fqn]  # noqa: SLF001 - see above
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _why(error: Exception) -> str:
    text = str(error)
    if "specialized" in text or "Constraints violated" in text or "ConstraintViolation" in type(error).__name__:
        return (
            "the module fixes the number of rows; it must take any number of rows along the first dimension"
            " (no batch size in view(), reshape(), expand() or in a Python condition)"
        )
    first = text.strip().splitlines()[0][:300] if text.strip() else "no message"
    return f"the module cannot be exported by torch.export: {type(error).__name__}: {first}"
