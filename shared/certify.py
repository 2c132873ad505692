"""Proves a bundle on this host: the golden rows are encoded and scored again, and compared with what was built."""

import hashlib

import numpy as np
import structlog

from shared.bundle import GOLDEN, Bundle
from shared.encode import Encoder
from shared.errors import NotCertified, ScoringError
from shared.golden import Golden, company, from_parquet, same
from shared.tile import Forward, Tile, find_tile, holds, run

RTOL = 1e-4
"""How far a golden score may be from the one of the building host: other CPUs and devices round differently."""

ATOL = 1e-6

_log = structlog.get_logger("forescore.certify")


def certify(bundle: Bundle, encoder: Encoder, forward: Forward) -> tuple[Tile, str]:
    """The tile that holds here, and the golden digest of this host. NotCertified says what does not hold."""
    golden = from_parquet(bundle.read(GOLDEN), bundle.schema, [tensor.shape for tensor in bundle.manifest.inputs])
    _require_encoding(bundle, encoder, golden)
    columns = len(bundle.schema.columns)
    try:
        tile = _tile(bundle, forward, golden)
        scores = run(forward, tile, golden.inputs, columns)
    except ScoringError as error:
        raise NotCertified(f"bundle {bundle.path}: the golden rows cannot be scored here: {error}") from error
    close = np.isclose(scores, golden.scores, rtol=RTOL, atol=ATOL).all(axis=1)
    if not close.all():
        raise NotCertified(
            f"bundle {bundle.path}: {np.count_nonzero(~close)} of {len(close)} golden rows score otherwise here than"
            " where the bundle was built; build it again with this host's torch"
        )
    return tile, golden_digest(scores)


def golden_digest(scores: np.ndarray) -> str:
    """sha256 over the golden scores' bits and shape: two hosts with the same digest give the same bits."""
    rows, columns = scores.shape
    bits = np.ascontiguousarray(scores, dtype="<f4").tobytes()
    return hashlib.sha256(f"{rows}x{columns}:".encode() + bits).hexdigest()


def _require_encoding(bundle: Bundle, encoder: Encoder, golden: Golden) -> None:
    encoded = encoder.columns(golden.table)
    actual = encoded.inputs()
    names = [tensor.name for tensor in bundle.manifest.inputs]
    for name, here, there in zip(names, actual, golden.inputs, strict=True):
        if not same(here, there):
            raise NotCertified(
                f"bundle {bundle.path}: the golden rows are encoded otherwise here than where it was built"
                f" (input {name}); build it again with this version of forescore"
            )


def _tile(bundle: Bundle, forward: Forward, golden: Golden) -> Tile:
    rows = company(bundle.schema, golden.inputs)
    columns = len(bundle.schema.columns)
    recorded = bundle.manifest.tile
    if recorded.multiples and holds(forward, recorded, rows, columns):
        return recorded
    found = find_tile(forward, rows, columns)  # a fixed tile is slow: this host may have a better one
    if found == recorded:
        return recorded
    _log.warning(
        "tile_differs",
        model=bundle.name,
        version=bundle.version,
        recorded=recorded.rows,
        rows=found.rows,
        multiples=found.multiples,
    )
    return found
