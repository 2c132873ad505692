"""Rounds: what is compared takes turns, so that what else the machine does meets all of them alike."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def interleaved(rounds: int, tasks: Mapping[str, Callable[[int], T]]) -> dict[str, list[T]]:
    """A B C A B C ...; each task is given the number of the round."""
    results: dict[str, list[T]] = {name: [] for name in tasks}
    for place in range(rounds):
        for name, task in tasks.items():
            results[name].append(task(place))
    return results


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def spread(values: Sequence[float]) -> float:
    """How far the values lie apart, as a share of their median."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0
