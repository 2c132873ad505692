"""Counts of rows in this process, as the rate limits of ``limits`` want them.

The library's own memory storage starts a thread every few milliseconds under load and reads the wall clock; this one
lives on the event loop and on a clock that is passed in. A window slides: the one before it counts less and less.
"""

from math import floor

from limits.storage.base import SlidingWindowCounterSupport

from shared.clock import Clock


class Windows(SlidingWindowCounterSupport):
    """Two numbers for each key, however many rows there are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[int, int, int]] = {}

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Takes ``amount`` rows, if they are within the limit."""
        number, current, previous, left = self._now(key, expiry)
        if floor(previous * left) + current + amount > limit:
            return False
        self._counts[key] = number, current + amount, previous
        return True

    def give_back(self, key: str, amount: int, expiry: int) -> None:
        """Undoes a taking."""
        number, current, previous, _ = self._now(key, expiry)
        self._counts[key] = number, max(0, current - amount), previous

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Rows of the previous window and its seconds to live, and the same of this one."""
        _, current, previous, left = self._now(key, expiry)
        return previous, left * expiry, current, (left + 1) * expiry

    def clear_sliding_window(self, key: str, expiry: int) -> None:  # noqa: ARG002 - as the library calls it
        """Forgets them."""
        self._counts.pop(key, None)

    def _now(self, key: str, expiry: int) -> tuple[int, int, int, float]:
        """This window's number, its rows, those of the one before, and which share of it is still to come."""
        place = self._clock.now() / expiry
        now = int(place)
        number, current, previous = self._counts.get(key, (now, 0, 0))
        if number != now:
            previous, current = (current if number == now - 1 else 0), 0
        return now, current, previous, 1 - (place - now)
