"""The scorer: the only forward pass, for the batch job and for the service."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from shared.bundle import GRAPH, Bundle
from shared.certify import certify
from shared.codes import Code, Rejection
from shared.encode import Encoded, Encoder
from shared.engine import Engine, choose_device, open_engine
from shared.errors import WrongShape
from shared.tile import Forward, Tile, run

_PROBES = 8


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

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the scores, in order."""
        return self.bundle.schema.columns

    def score(self, encoded: Encoded) -> np.ndarray:
        """Scores of all encoded rows: float32 ``[rows, columns]``, in order.

        ScoringError when the graph fails, WrongShape when it returns another number of rows or columns.
        """
        if not len(encoded):
            return np.empty((0, len(self.columns)), np.float32)
        return run(self.forward, self.tile, encoded.inputs(), len(self.columns))


def open_scorer(bundle: Bundle, *, device: str = "auto", threads: int = 0) -> Scorer:
    """Loads the graph onto the device and proves it there with the golden rows; NotCertified says what did not hold."""
    if threads > 0:
        torch.set_num_threads(threads)
    place = choose_device(device)
    forward = open_engine(bundle.manifest.engine, bundle.read(GRAPH), place)
    encoder = Encoder(bundle.fitted)
    tile, digest = certify(bundle, encoder, forward)
    return Scorer(
        bundle=bundle,
        encoder=encoder,
        forward=forward,
        tile=tile,
        device=str(place),
        engine=bundle.manifest.engine,
        golden_digest=digest,
    )


def score_each(scorer: Scores, encoded: Encoded) -> Scored:
    """Scores all rows that can be: a row that makes the forward pass fail, or whose score is not finite, costs itself.

    WrongShape when the model returns the wrong number of rows or columns for every row that is tried alone: then it is
    the model that is wrong, and not a row.
    """
    found, failed = _bisect(scorer, encoded)
    positions, scores = found
    finite = np.isfinite(scores).all(axis=1)
    lost = [(int(place), Code.NON_FINITE_SCORE) for place in positions[~finite]]
    lost += [(place, Code.FORWARD_FAILED) for place in failed]
    rejections = [Rejection(row=int(encoded.rows[place]), code=code) for place, code in lost]
    return Scored(
        rows=encoded.rows[positions[finite]],
        scores=scores[finite],
        rejections=tuple(sorted([*encoded.rejections, *rejections], key=lambda rejection: rejection.row)),
    )


def _bisect(scorer: Scores, encoded: Encoded) -> tuple[tuple[np.ndarray, np.ndarray], list[int]]:
    """(positions and scores of the rows that could be scored, in order), and the positions of those that fail alone."""
    scored = [(np.empty(0, np.int64), _score(scorer, encoded.take(np.empty(0, np.int64))))]
    failed: list[int] = []
    waiting = [np.arange(len(encoded))] if len(encoded) else []
    while waiting:
        positions = waiting.pop()
        try:
            scored.append((positions, _score(scorer, encoded.take(positions))))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is one row's until it is every row's
            if len(positions) == len(encoded) and isinstance(error, WrongShape):
                _require_some_shape(scorer, encoded, error)
            if len(positions) == 1:
                failed.append(int(positions[0]))
            else:
                middle = len(positions) // 2
                waiting += [positions[middle:], positions[:middle]]  # the first half is tried first: order is kept
    return (np.concatenate([place for place, _ in scored]), np.concatenate([part for _, part in scored])), failed


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
