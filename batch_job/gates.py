"""What a run and its snapshot must show before the snapshot is promoted."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from batch_job.counts import Counts
from shared.errors import SettingsError, TooManyRejected
from shared.settings import GateSettings
from shared.snapshot import Histogram, SnapshotMeta

_TOP = 5
_EMPTY_SHARE = 1e-4
_CHI_SQUARE_999 = (10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32, 26.12, 27.88)
"""The 99.9 % points of chi-square with 1 to 9 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class RejectionLimit:
    """How many rows may be rejected: a count (``120``), or a share of the input rows (``10%``)."""

    text: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+(\.\d+)?%|\d+", self.text):
            raise SettingsError(f"--max-rejected {self.text[:40]!r}: a count such as 120, or a share such as 10%")

    def rows(self, total: int) -> int:
        """The most rows of so many that may be rejected."""
        return int(Decimal(self.text[:-1]) * total / 100) if self.text.endswith("%") else int(self.text)

    def require(self, counts: Counts, total: int) -> None:
        """TooManyRejected if more rows than that of the run's total were rejected so far."""
        if counts.rejected > self.rows(total):
            reasons = "; ".join(map(str, counts.rejections[:_TOP]))
            so_far = " in the first chunks alone" if counts.input < total else ""
            raise TooManyRejected(
                f"{counts.rejected} of {total} rows rejected{so_far}, more than --max-rejected {self.text}: {reasons}; "
                "mend the table, or allow more and run the same command again"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate: whether the snapshot passes, and the numbers."""

    name: str
    passed: bool
    numbers: str


def gates(
    new: SnapshotMeta, active: SnapshotMeta | None, counted: Mapping[str, Histogram], settings: GateSettings
) -> list[Gate]:
    """All gates of a snapshot against the active one; none if there is nothing to compare with.

    ``counted``: the new scores by column, on the edges of the active snapshot's histograms.
    """
    if active is None:
        return []
    expected = histograms_of(active)
    shifts = [_shift(column, expected[column], counted[column], settings.max_psi) for column in counted]
    return [_coverage(new, active, settings.min_coverage), *shifts]


def histograms_of(meta: SnapshotMeta) -> dict[str, Histogram]:
    """A snapshot's histograms by score column; those of a column without scores are left out."""
    pairs = zip(meta.columns, meta.histograms, strict=False)
    return {column: histogram for column, histogram in pairs if sum(histogram.counts)}


def psi(expected: Iterable[int], actual: Iterable[int]) -> float:
    """Population stability index of two histograms on the same edges: the sum of (a - e) ln(a / e) over the shares.

    Source: N. Siddiqi, Credit Risk Scorecards (2006). A share of nothing counts as 0.0001: the logarithm
    must exist.
    """
    e, a = (_shares(counts) for counts in (expected, actual))
    return float(((a - e) * np.log(a / e)).sum())


def noise(parts: int, expected: int, actual: int) -> float:
    """The PSI that two samples of one distribution exceed once in a thousand times, by chance alone.

    Of n and m values in k parts it is about chi-square with k - 1 degrees of freedom, times 1/n + 1/m. Source:
    B. Yurdakul, Statistical Properties of Population Stability Index (2018).
    """
    freedom = min(max(parts - 1, 1), len(_CHI_SQUARE_999))
    return _CHI_SQUARE_999[freedom - 1] * (1 / max(expected, 1) + 1 / max(actual, 1))


def _coverage(new: SnapshotMeta, active: SnapshotMeta, least: float) -> Gate:
    share = new.scored / active.scored if active.scored else 1.0
    numbers = (
        f"{new.scored} entities scored, {share:.1%} of the {active.scored} of {active.snapshot}; at least {least:.0%}"
    )
    return Gate(name="coverage", passed=share >= least, numbers=numbers)


def _shift(column: str, expected: Histogram, counted: Histogram, most: float) -> Gate:
    """A shift counts if it is beyond the limit and beyond what chance makes of so few scores."""
    found = psi(expected.counts, counted.counts)
    chance = noise(len(expected.counts), sum(expected.counts), sum(counted.counts))
    numbers = f"PSI {found:.3f}; at most {max(most, chance):.3f}"
    return Gate(name=f"shift of {column}", passed=found <= max(most, chance), numbers=numbers)


def _shares(counts: Iterable[int]) -> npt.NDArray[np.float64]:
    numbers = np.array(list(counts), dtype=np.float64)
    shares: npt.NDArray[np.float64] = np.maximum(numbers / max(numbers.sum(), 1), _EMPTY_SHARE)
    return shares
