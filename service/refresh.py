"""What one run scored grows too old in one moment. So each score is renewed before, at a moment of its entity's own.

It is served all the while: the renewal is the server's own work, under a budget.
"""

from dataclasses import dataclass
from typing import Self
from zlib import crc32

from shared.settings import ServiceSettings

_WHOLE = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeLimit:
    """``seconds``: the age above which no score is served. In the last ``spread`` of it, a share, scores fall due."""

    seconds: float
    spread: float

    @classmethod
    def of(cls, settings: ServiceSettings) -> Self | None:
        """The limit that is set, if one is."""
        if settings.max_age_seconds is None:
            return None
        return cls(seconds=settings.max_age_seconds, spread=settings.max_age_spread)

    def is_over(self, age: float) -> bool:
        """Whether the score is too old to be served."""
        return age > self.seconds

    def is_due(self, entity_id: str, age: float) -> bool:
        """Whether the score is to be renewed. By a hash of the id: the same in each process, and spread evenly."""
        left = self.seconds - age
        span = self.seconds * self.spread
        return left < span and left < span * crc32(entity_id.encode()) / _WHOLE
