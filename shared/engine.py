"""Engines: how a graph is run. Opening one gives a ``Forward``; nothing else knows what is behind it.

There is one engine, ``export``: the exported program as it lies in the bundle. Another engine is another case of
``open_engine``, and is certified with the golden rows like this one.
"""

import io
from typing import Literal, assert_never

import numpy as np
import torch
from torch.export.passes import move_to_device_pass

from shared import archive
from shared.errors import BundleCorrupt, DeviceUnavailable, ScoringError
from shared.rounding import settle_rounding
from shared.tile import Arrays, Forward

Engine = Literal["export"]

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


def open_engine(engine: Engine, graph: bytes, device: torch.device) -> Forward:
    """The graph as a callable on that device. BundleCorrupt when the graph holds anything but a graph."""
    settle_rounding()
    match engine:
        case "export":
            return _open_export(graph, device)
        case _:
            assert_never(engine)


def _open_export(graph: bytes, device: torch.device) -> Forward:
    archive.check(graph)
    try:
        program = torch.export.load(io.BytesIO(graph))
        if device.type != "cpu":
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
