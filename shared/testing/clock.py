"""A clock that stands still until it is told to go on."""

from dataclasses import dataclass


@dataclass(slots=True)
class FrozenClock:
    """A ``shared.clock.Clock`` whose time is ``time``."""

    time: float = 1_700_000_000.0

    def now(self) -> float:
        """The time, as it was set."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Lets ``seconds`` pass at once."""
        self.time += seconds
