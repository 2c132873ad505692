"""Why a row was rejected: stable names for people, stable numbers for the store."""

from dataclasses import dataclass
from enum import IntEnum


class Code(IntEnum):
    """A reason for a rejection. Numbers are stored in snapshots: add new ones, never renumber."""

    MISSING = 1
    """No value, where the feature's rule says that there must be one."""
    WRONG_TYPE = 2
    """A value of a type that the feature does not take: a date in a number, a list in a text."""
    NOT_A_NUMBER = 3
    """Text that does not spell a number."""
    NOT_FINITE = 4
    """Infinite, or too large for float32."""
    NOT_EXACT = 5
    """An integer beyond 2**53, which a float64 cannot hold exactly."""
    OUT_OF_DOMAIN = 6
    """At or below -1 where the feature takes log1p."""
    UNSEEN = 7
    """A category that was not in the training table, where the feature's rule is to reject it."""
    NOT_BOOLEAN = 8
    """A number or a text that is neither true nor false."""
    WRONG_SHAPE = 9
    """A tensor of another shape than the schema's."""
    OUT_OF_RANGE = 10
    """A tensor element outside of the schema's bounds."""
    UNKNOWN_FEATURE = 11
    """A request names a feature that the schema does not have."""
    MALFORMED_LINE = 12
    """A line of a CSV file that has another number of cells than the header."""
    NULL_ID = 20
    """The row has no entity id."""
    INVALID_ID = 21
    """The entity id is empty, blank, too long, or has control characters."""
    NON_FINITE_SCORE = 30
    """The model's output for this row is NaN or infinite."""
    FORWARD_FAILED = 31
    """The model raised for this row, alone."""
    TIMEOUT = 32
    """The model did not come back for this row, alone, within the limit."""

    @property
    def text(self) -> str:
        """The name in files, problems and metrics: ``not_a_number``."""
        return self.name.lower()

    @classmethod
    def of(cls, text: str) -> "Code":
        """The code of a name such as ``not_a_number``; KeyError for another text."""
        return cls[text.upper()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One row that was not scored: its position in what was given, why, and the field if one is to blame."""

    row: int
    code: Code
    field: str | None = None
