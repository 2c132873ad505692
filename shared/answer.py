"""What a score looks like to its reader: its name, its shortest decimal, and the prediction that follows from it."""

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from shared.schema import Binary, MultiClass, MultiLabel, Output, Regression

Prediction = bool | str | list[str]


def shortest(value: float) -> float:
    """The Python float whose ``repr`` is the shortest decimal of the float32 ``value``.

    0.8581489324569702 is the float32 that also reads 0.8581489: ``np.float32(shortest(x)) == x``, bit for bit.
    """
    return float(str(np.float32(value)))


def named_scores(outputs: Sequence[Output], scores: Sequence[float]) -> dict[str, float]:
    """The scores of one row under their names, in the order of the outputs."""
    names = [column for output in outputs for column in output.columns]
    return {name: shortest(score) for name, score in zip(names, scores, strict=True)}


def predictions(outputs: Sequence[Output], scores: Sequence[float]) -> dict[str, Prediction]:
    """What the scores of one row say, for the outputs that define it (see the outputs' docstrings).

    Thresholds are compared with the printed decimal: a score that reads 0.7 is at the threshold 0.7.
    """
    found: dict[str, Prediction] = {}
    start = 0
    for output in outputs:
        stop = start + len(output.columns)
        prediction = _predict(output, [shortest(score) for score in scores[start:stop]])
        if prediction is not None:
            found[output.name] = prediction
        start = stop
    return found


def _predict(output: Output, scores: list[float]) -> Prediction | None:
    match output:
        case Binary():
            return _binary(output, scores[0])
        case MultiClass():
            return output.classes[scores.index(max(scores))]
        case MultiLabel():
            return _labels(output, scores)
        case Regression():
            return None
        case _:
            assert_never(output)


def _labels(output: MultiLabel, scores: list[float]) -> list[str] | None:
    if output.threshold is None:
        return None
    return [label for label, score in zip(output.classes, scores, strict=True) if score >= output.threshold]


def _binary(output: Binary, score: float) -> bool | str | None:
    if output.threshold is None:
        return None
    above = score >= output.threshold
    return output.classes[above] if output.classes else above
