"""What became of a scheduled run, as its process says and as the schedule counts it."""

from dataclasses import dataclass, field
from typing import Any

DONE = "done"
SKIPPED = "skipped"
"""The night's snapshot was there already."""
HELD = "held"
"""A gate holds the snapshot back."""
BUSY = "busy"
"""Somebody else holds the lease."""
FAILED = "failed"
TIMED_OUT = "timed_out"
"""It was ended at its deadline."""
STOPPED = "stopped"
"""The schedule itself was told to end."""
STORE_DOWN = "store_down"
"""The store did not answer, so nothing was begun."""

OUTCOMES = (DONE, SKIPPED, HELD, BUSY, FAILED, TIMED_OUT, STOPPED, STORE_DOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``report`` is the run's, where it has one."""

    kind: str
    reason: str | None = None
    seconds: float = 0.0
    report: dict[str, Any] = field(default_factory=dict)
