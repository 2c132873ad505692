"""The engine ``export``: the exported program as it lies in the bundle, on every device that torch has."""

import io

import numpy as np
import torch

from shared import archive
from shared.errors import BundleCorrupt, ScoringError
from shared.rounding import settle_rounding
from shared.tile import Arrays, Forward

_DTYPES = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool}


def open_export(graph: bytes, device: str) -> Forward:
    """The exported graph as a callable on that device. BundleCorrupt when it holds anything but a graph."""
    settle_rounding()
    archive.check(graph)
    try:
        program = torch.export.load(io.BytesIO(graph))
        if device != "cpu":
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
        torch.get_num_threads()  # tells it to this very thread
        try:
            with torch.inference_mode():
                tensors = [_placed(part, device) for part in inputs]
                (scores,) = module(*lifted, *tensors)
                return scores.cpu().numpy()  # type: ignore[no-any-return]
        except Exception as error:  # noqa: BLE001 - the graph is the user's: any error is its failure for these rows
            # only the type is told: torch's texts quote values
            raise ScoringError(f"the forward pass of {len(inputs[0])} rows failed ({type(error).__name__})") from None

    return forward


def _placed(part: np.ndarray, device: str) -> torch.Tensor:
    """A copy in memory of torch's own: always aligned alike, as products may round by alignment, and safe to write."""
    return torch.empty(part.shape, dtype=_DTYPES[part.dtype.name], device=device).copy_(torch.from_numpy(part))
