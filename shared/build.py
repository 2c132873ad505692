"""Builds a bundle: exports the graph, chooses golden rows, finds the tile, proves it all, and only then names it."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from shared.bundle import (
    GOLDEN,
    GRAPH,
    MANIFEST,
    Bundle,
    FileDigest,
    Manifest,
    input_tensors,
    load_bundle,
    require_name,
)
from shared.errors import BundleConflict, BundleError, NotCertified, ScoringError
from shared.export import export_graph
from shared.exported import open_export
from shared.fitted import Fitted
from shared.golden import Golden, choose, company, to_parquet
from shared.schema import Regression, Schema
from shared.tile import Tile, find_tile, run

_SLACK = 1e-6  # a probability computed in float32 may pass 1 by its last bit


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleSpec:
    """All that a bundle is made of. ``golden``: a table from which the golden rows are chosen, a few hundred rows
    of the training table, say; ``code_revision``: of the training code, for the record."""

    name: str
    version: str
    fitted: Fitted
    module: nn.Module
    golden: pa.Table
    code_revision: str | None = None


def build_bundle(  # noqa: PLR0913 - the keyword-only face of BundleSpec, for training scripts
    out: Path,
    *,
    name: str,
    version: str,
    fitted: Fitted,
    module: nn.Module,
    golden: pa.Table,
    code_revision: str | None = None,
) -> Bundle:
    """Builds the bundle directory ``out``. BundleError says what is wrong with its parts, BundleConflict that ``out``
    is taken. See ``BundleSpec`` for the parts."""
    spec = BundleSpec(
        name=name, version=version, fitted=fitted, module=module, golden=golden, code_revision=code_revision
    )
    return build_from(spec, Path(out))


def build_from(spec: BundleSpec, out: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Bundle:
    """``build_bundle`` for parts that come as one value."""
    require_name(spec.name, spec.version)
    require_free(out)
    table, encoded = choose(spec.fitted, spec.golden)
    graph = export_graph(spec.fitted, spec.module, encoded.inputs())
    tile, scores = _proved(spec.fitted.schema, graph, encoded.inputs())
    golden = Golden(table=table, inputs=encoded.inputs(), scores=scores)
    files = {GRAPH: graph, GOLDEN: to_parquet(golden)}
    manifest = Manifest(
        name=spec.name,
        version=spec.version,
        fitted=spec.fitted,
        inputs=input_tensors(spec.fitted.schema),
        engine="export",
        tile=tile,
        golden_rows=len(scores),
        created_at=now().isoformat(timespec="seconds"),
        code_revision=spec.code_revision,
        torch_version=torch.__version__,
        files={
            name: FileDigest(bytes=len(data), sha256=hashlib.sha256(data).hexdigest()) for name, data in files.items()
        },
    )
    _write(out, {**files, MANIFEST: manifest.to_json()})
    return load_bundle(out)


def require_free(out: Path) -> None:
    """BundleConflict if ``out`` is taken, BundleError if no directory can be made there. Asked before the work."""
    if out.exists() or out.is_symlink():
        raise BundleConflict(f"{out} exists; a bundle is never changed: choose another version and another directory")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BundleError(f"{out.parent} cannot be made: {error.strerror}; name another directory") from None


def _proved(schema: Schema, graph: bytes, inputs: tuple[np.ndarray, ...]) -> tuple[Tile, np.ndarray]:
    """The tile and the golden scores, from the graph as it was saved: what is proved is what will be loaded."""
    forward = open_export(graph, "cpu")
    columns = len(schema.columns)
    try:
        tile = find_tile(forward, company(schema, inputs), columns)
        scores = run(forward, tile, inputs, columns)
    except (NotCertified, ScoringError) as error:
        raise BundleError(f"the exported graph fails on the golden rows: {error}") from error
    _require_domain(schema, scores)
    return tile, scores


def _require_domain(schema: Schema, scores: np.ndarray) -> None:
    """Golden scores are finite, and probabilities are between 0 and 1."""
    start = 0
    for output in schema.outputs:
        part = scores[:, start : start + len(output.columns)]
        start += len(output.columns)
        if not np.isfinite(part).all():
            count = np.count_nonzero(~np.isfinite(part).all(axis=1))
            raise BundleError(
                f"output {output.name}: {count} of {len(part)} golden rows have a score that is not finite;"
                " clip or standardise the features, or train on"
            )
        if not isinstance(output, Regression) and (part.min() < -_SLACK or part.max() > 1 + _SLACK):
            raise BundleError(
                f"output {output.name}: with activation='none' the model must return probabilities, and golden rows"
                " score outside of 0 to 1; let Forescore apply the activation, or end the module with one"
            )


def _write(out: Path, files: dict[str, bytes]) -> None:
    """All files under a temporary name, synced, and then the name: ``out`` is whole or not there."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))
    try:
        temporary.chmod(0o755)
        for name, data in files.items():
            with (temporary / name).open("wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
        _sync(temporary)
        try:
            temporary.rename(out)
        except OSError as error:
            raise BundleConflict(f"{out} could not be given its name: {error.strerror}; choose another one") from None
        _sync(out.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
