"""How the scores of a run are distributed: ten parts for each score column."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batch_job.parts import score_names
from shared.snapshot import Histogram

Edges = Mapping[str, tuple[float, ...]]

_SAMPLE_ROWS = 100_000
_SAMPLE_VALUES = 4_000_000


def decile_edges(parts: Iterable[pa.Table], columns: Sequence[str], scored: int) -> dict[str, tuple[float, ...]]:
    """Edges that cut each column's scores into about ten equal parts, from every n-th scored row."""
    sample = min(_SAMPLE_ROWS, _SAMPLE_VALUES // len(columns))
    stride = max(1, -(-scored // sample))
    taken: list[list[npt.NDArray[np.float32]]] = [[] for _ in columns]
    seen = 0
    for part in parts:
        scores = [_scores(part, name) for name in score_names(columns)]
        for kept, column in zip(taken, scores, strict=True):
            kept.append(column[-seen % stride :: stride])
        seen += len(scores[0])
    return {column: _deciles(np.concatenate(kept)) for column, kept in zip(columns, taken, strict=True) if kept}


def histograms(parts: Iterable[pa.Table], columns: Sequence[str], edges: Edges) -> dict[str, Histogram]:
    """Counts all scores on these edges; a column without edges is left out."""
    names = {column: name for column, name in zip(columns, score_names(columns), strict=True) if column in edges}
    counts = {column: np.zeros(len(edges[column]) + 1, dtype=np.int64) for column in names}
    for part in parts:
        for column, name in names.items():
            counts[column] += _counted(edges[column], _scores(part, name))
    return {
        column: Histogram(edges=edges[column], counts=tuple(numbers.tolist())) for column, numbers in counts.items()
    }


def _scores(part: pa.Table, name: str) -> npt.NDArray[np.float32]:
    scores: npt.NDArray[np.float32] = part[name].drop_null().to_numpy()
    return scores


def _deciles(scores: npt.NDArray[np.float32]) -> tuple[float, ...]:
    """Fewer than nine edges where values repeat; none of no scores."""
    if not len(scores):
        return ()
    return tuple(sorted({float(edge) for edge in np.quantile(scores, np.arange(1, 10) / 10, method="lower")}))


def _counted(edges: tuple[float, ...], scores: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """A score below ``edges[i]`` and not below the edge before lies in part i; the last part is the rest."""
    places = np.searchsorted(np.array(edges, dtype=np.float64), scores.astype(np.float64), side="right")
    return np.bincount(places, minlength=len(edges) + 1).astype(np.int64)
