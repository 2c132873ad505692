"""A circuit breaker: it stops asking a store that does not answer, and lets one call find out when it does again.

It lives in the process. Kept in the store that it guards, it would be gone when it is needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from shared.clock import Clock
from shared.errors import StoreDown


class BreakerState(IntEnum):
    """The numbers are those of the metric."""

    CLOSED = 0
    PROBING = 1
    OPEN = 2


class CircuitBreaker:
    """Opens after ``failures`` in a row; after ``seconds`` one call at a time may try, and its success closes it."""

    def __init__(self, failures: int, seconds: float, clock: Clock) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._failed = 0
        self._opened_at = 0.0
        self._probing = False

    @property
    def state(self) -> BreakerState:
        if self._failed < self._limit:
            return BreakerState.CLOSED
        waiting = self._clock.now() < self._opened_at + self._seconds
        return BreakerState.OPEN if waiting and not self._probing else BreakerState.PROBING

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around one call. Only StoreDown counts as a failure; a call that was cancelled says nothing."""
        probe = self._enter()
        try:
            yield
        except StoreDown:
            self._fail()
            raise
        except Exception:
            self._failed = 0  # it answered, if only with a refusal
            raise
        else:
            self._failed = 0
        finally:
            if probe:
                self._probing = False

    def _enter(self) -> bool:
        if self.state is BreakerState.CLOSED:
            return False
        if self._probing or self.state is BreakerState.OPEN:
            raise StoreDown("the store has not answered several times in a row; it will be asked again in a moment")
        self._probing = True
        return True

    def _fail(self) -> None:
        self._failed += 1
        self._opened_at = self._clock.now()
