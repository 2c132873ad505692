"""Where the scores of a run go."""

from enum import StrEnum


class Into(StrEnum):
    """Where the scores of a run go."""

    NEW = "new"
    """Into a copy of the active snapshot, in which they take the place of the old ones."""
    ACTIVE = "active"
    """Into the active snapshot itself."""
    ALONE = "alone"
    """Into a snapshot that holds nothing else."""
