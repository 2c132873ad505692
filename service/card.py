"""The contract of the model that a process serves, as ``GET /model`` tells it."""

from typing import TYPE_CHECKING

import orjson
from pydantic import TypeAdapter

from shared.schema import Feature, Output

if TYPE_CHECKING:
    from shared.scorer import Scorer

_FEATURES: TypeAdapter[tuple[Feature, ...]] = TypeAdapter(tuple[Feature, ...])
_OUTPUTS: TypeAdapter[tuple[Output, ...]] = TypeAdapter(tuple[Output, ...])


def model_card(scorer: "Scorer") -> bytes:
    """Made once when the model is loaded: nothing in it changes while it is served."""
    bundle, manifest = scorer.bundle, scorer.bundle.manifest
    features = _FEATURES.dump_python(bundle.schema.features, mode="json")
    for feature in features:
        if feature["kind"] == "categorical":
            feature["vocabulary"] = bundle.fitted.vocabularies[feature["name"]]
    outputs = _OUTPUTS.dump_python(bundle.schema.outputs, mode="json")
    for output, declared in zip(outputs, bundle.schema.outputs, strict=True):
        output["scores"] = declared.columns
    return orjson.dumps(
        {
            "model": bundle.name,
            "model_version": bundle.version,
            "bundle_digest": bundle.digest,
            "golden_digest": scorer.golden_digest,
            "entity": bundle.schema.entity,
            "features": features,
            "inputs": [tensor.model_dump(mode="json") for tensor in manifest.inputs],
            "outputs": outputs,
            "engine": scorer.engine,
            "tile": {"rows": scorer.tile.rows, "multiples": scorer.tile.multiples},
            "device": scorer.device,
            "torch_version": manifest.torch_version,
            "created_at": manifest.created_at,
            "code_revision": manifest.code_revision,
        }
    )
