"""The scorer: the only forward pass, for the batch job and for the service."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import structlog

from shared.bundle import GRAPH, Bundle
from shared.certify import certify
from shared.codes import Code, Rejection
from shared.compiled import CompiledGraph, open_compiled
from shared.encode import Encoded, EncodedRow, Encoder
from shared.engine import Engine, EngineChoice, choose_device, compile_bundle, find_compiled
from shared.errors import EngineUnavailable, NotCertified, WrongShape
from shared.libtorch import use_threads
from shared.tile import Forward, Tile, once, proved, run

EXPORT = EngineChoice()
"""The exported graph as it lies in the bundle: what a caller gets who says nothing."""

_PROBES = 8
_FEW = 64

_log = structlog.get_logger("forescore.scorer")


class Scores(Protocol):
    """What gives scores: the ``Scorer``, or a double of it."""

    def score(self, encoded: Encoded) -> np.ndarray:
        """float32 ``[rows, columns]``, one line for each encoded row, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What became of rows: ``scores[i]`` belongs to row ``rows[i]`` of the input; all others are in ``rejections``."""

    rows: np.ndarray
    scores: np.ndarray
    rejections: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A bundle, opened and certified on this host. Scoring changes nothing in it: threads may share it."""

    bundle: Bundle
    encoder: Encoder
    forward: Forward
    tile: Tile
    device: str
    engine: Engine
    golden_digest: str
    width: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the scores, in order."""
        return self.bundle.schema.columns

    def score(self, encoded: Encoded) -> np.ndarray:
        """Scores of all encoded rows: float32 ``[rows, columns]``, in order.

        ScoringError when the graph fails, WrongShape when it returns another number of rows or columns.
        """
        columns, forward = self.width, self.forward
        if type(encoded) is EncodedRow and type(forward) is CompiledGraph and encoded.packing.tile == self.tile.rows:
            return proved(forward.repeated(encoded.line, encoded.packing), self.tile.rows, columns)[:1]
        rows = len(encoded.rows)
        if not rows:
            return np.empty((0, columns), np.float32)
        if encoded.whole and len(encoded.whole[0]) == self.tile.only_size(rows):
            return once(forward, encoded.whole, columns)[:rows]
        return run(forward, self.tile, encoded.inputs(), columns)


def open_scorer(bundle: Bundle, *, device: str = "auto", threads: int = 0, engine: EngineChoice = EXPORT) -> Scorer:
    """Opens the graph on the device, with the engine chosen, and proves it there with the golden rows.

    NotCertified says what did not hold, EngineUnavailable why there is no compiled engine where it must be.
    """
    if threads > 0:
        use_threads(threads)
    place = choose_device(device)
    if engine.wanted == "compiled":
        return _certified(bundle, place, "compiled", open_compiled(compile_bundle(bundle, place, engine)))
    if engine.wanted == "auto":
        try:
            return _certified(bundle, place, "compiled", open_compiled(find_compiled(bundle, place, engine)))
        except (EngineUnavailable, NotCertified) as error:
            _log.warning("engine_export", model=bundle.name, version=bundle.version, reason=str(error))
    from shared.exported import open_export  # noqa: PLC0415 - torch's Python package: seconds

    return _certified(bundle, place, "export", open_export(bundle.read(GRAPH), place))


def _certified(bundle: Bundle, device: str, engine: Engine, forward: Forward) -> Scorer:
    encoder = Encoder(bundle.fitted)
    tile, digest = certify(bundle, encoder, forward)
    return Scorer(
        bundle=bundle,
        encoder=encoder.for_tiles(tile.rows),
        forward=forward,
        tile=tile,
        device=device,
        engine=engine,
        golden_digest=digest,
        width=len(bundle.schema.columns),
    )


def score_each(scorer: Scores, encoded: Encoded) -> Scored:
    """Scores all rows that can be: a row that makes the forward pass fail, or whose score is not finite, costs itself.

    WrongShape when the model returns the wrong number of rows or columns for every row that is tried alone: then it is
    the model that is wrong, and not a row.
    """
    try:
        scores = _score(scorer, encoded)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is one row's until it is every row's
        if isinstance(error, WrongShape):
            _require_some_shape(scorer, encoded, error)
        positions, scores, failed = _bisect(scorer, encoded)
    else:
        if _all_finite(scores):  # nothing to look for: what came back is handed on as it is
            return Scored(rows=encoded.rows, scores=scores, rejections=encoded.rejections)
        positions, failed = np.arange(len(encoded)), []
    finite = np.isfinite(scores).all(axis=1)
    lost = [(int(place), Code.NON_FINITE_SCORE) for place in positions[~finite]]
    lost += [(place, Code.FORWARD_FAILED) for place in failed]
    rejections = [Rejection(row=int(encoded.rows[place]), code=code) for place, code in lost]
    return Scored(
        rows=encoded.rows[positions[finite]],
        scores=scores[finite],
        rejections=tuple(sorted([*encoded.rejections, *rejections], key=lambda rejection: rejection.row)),
    )


def _all_finite(scores: np.ndarray) -> bool:
    """Few numbers are looked at one by one: NumPy takes longer to begin."""
    if scores.size <= _FEW:
        return all(map(math.isfinite, scores.ravel().tolist()))
    return bool(np.isfinite(scores).all())


def _bisect(scorer: Scores, encoded: Encoded) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Rows that failed together, tried apart: the positions of those that could be scored, in order, with their scores,
    and the positions of those that fail alone."""
    scored = [(np.empty(0, np.int64), _score(scorer, encoded.take(np.empty(0, np.int64))))]
    failed = [0] if len(encoded) == 1 else []
    waiting = _halves(np.arange(len(encoded))) if len(encoded) > 1 else []
    while waiting:
        positions = waiting.pop()
        try:
            scored.append((positions, _score(scorer, encoded.take(positions))))
        except Exception:  # noqa: BLE001 - the same
            if len(positions) == 1:
                failed.append(int(positions[0]))
            else:
                waiting += _halves(positions)
    return np.concatenate([place for place, _ in scored]), np.concatenate([part for _, part in scored]), failed


def _halves(positions: np.ndarray) -> list[np.ndarray]:
    """The first half is the last one: it is taken up first, so that order is kept."""
    middle = len(positions) // 2
    return [positions[middle:], positions[:middle]]


def _score(scorer: Scores, encoded: Encoded) -> np.ndarray:
    scores = scorer.score(encoded)
    if len(scores) != len(encoded):
        raise WrongShape(f"the model returned {len(scores)} rows for {len(encoded)}")
    return scores


def _require_some_shape(scorer: Scores, encoded: Encoded, error: WrongShape) -> None:
    """Raises ``error`` when rows tried alone, a few of them spread over the batch, all come back in a wrong shape."""
    for place in np.linspace(0, len(encoded) - 1, min(_PROBES, len(encoded))).astype(np.int64):
        try:
            _score(scorer, encoded.take(np.array([place])))
        except WrongShape:
            continue
        except Exception:  # noqa: BLE001 - it fails for a reason of its own, which bisection will find
            return
        return
    raise error
