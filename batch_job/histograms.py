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
    [counted] = histograms_on(parts, columns, [edges])
    return counted


def histograms_on(
    parts: Iterable[pa.Table], columns: Sequence[str], several: Sequence[Edges]
) -> list[dict[str, Histogram]]:
    """As ``histograms``, on each of several edges, in one pass over the parts."""
    names = dict(zip(columns, score_names(columns), strict=True))
    counts = [
        {column: np.zeros(len(edges[column]) + 1, np.int64) for column in names if column in edges} for edges in several
    ]
    for part in parts:
        for column, name in names.items():
            scores = _scores(part, name).astype(np.float64)
            for edges, counted in zip(several, counts, strict=True):
                if column in counted:
                    counted[column] += _counted(edges[column], scores)
    return [
        {column: Histogram(edges=edges[column], counts=tuple(found.tolist())) for column, found in counted.items()}
        for edges, counted in zip(several, counts, strict=True)
    ]


def _scores(part: pa.Table, name: str) -> npt.NDArray[np.float32]:
    scores: npt.NDArray[np.float32] = part[name].drop_null().to_numpy()
    return scores


def _deciles(scores: npt.NDArray[np.float32]) -> tuple[float, ...]:
    """Fewer than nine edges where values repeat; none of no scores."""
    if not len(scores):
        return ()
    return tuple(sorted({float(edge) for edge in np.quantile(scores, np.arange(1, 10) / 10, method="lower")}))


def _counted(edges: tuple[float, ...], scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """A score below ``edges[i]`` and not below the edge before lies in part i; the last part is the rest."""
    reaching = [len(scores), *(np.count_nonzero(scores >= edge) for edge in edges), 0]
    counts = np.array(reaching, dtype=np.int64)
    return counts[:-1] - counts[1:]
