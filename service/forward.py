"""The forward pass as the desk sees it: rows in, scores or reasons out."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from shared.codes import Rejection
from shared.telemetry import StageTimer

if TYPE_CHECKING:  # the scorer brings torch, which a process loads while it already answers its probes
    from shared.scorer import Scored

Row = Mapping[str, object]


class RowScorer(Protocol):
    """Scores rows of features. What collects the rows of several requests into one forward pass stands behind this."""

    async def score(self, rows: Sequence[Row], stages: StageTimer, until: float | None = None) -> "Scored":
        """Each row is scored or rejected, on its own; positions are those in ``rows``.

        Overloaded where it cannot be done by ``until``, a time of the event loop's clock. ScoringError where the model
        fails whatever the row.
        """
        ...

    async def check(self, row: Row) -> Rejection | None:
        """Why the encoder would reject the row, without a forward pass."""
        ...
