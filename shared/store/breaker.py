"""A circuit breaker: it stops asking a store that does not answer, and lets one call find out when it does again.

It lives in the process. Kept in the store that it guards, it would be gone when it is needed.
"""

from enum import IntEnum
from types import TracebackType

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

    @property
    def is_calm(self) -> bool:
        """Whether the last call succeeded."""
        return self._failed == 0

    def guard(self) -> "_Guard":
        """Around one call. Only StoreDown counts as a failure; a call that was cancelled says nothing."""
        return _Guard(self)

    def _leave(self, kind: type[BaseException] | None, *, probe: bool) -> None:
        if probe:
            self._probing = False
        if kind is None or (issubclass(kind, Exception) and not issubclass(kind, StoreDown)):
            self._failed = 0  # it answered, if only with a refusal
        elif issubclass(kind, StoreDown):
            self._fail()

    def _enter(self) -> bool:
        if self._failed < self._limit:
            return False
        if self._probing or self.state is BreakerState.OPEN:
            raise StoreDown("the store has not answered several times in a row; it will be asked again in a moment")
        self._probing = True
        return True

    def _fail(self) -> None:
        self._failed += 1
        self._opened_at = self._clock.now()


class _Guard:
    """A class of its own, since every look-up passes through it: a generator takes three times as long."""

    __slots__ = ("_breaker", "_probe")

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        self._probe = False

    def __enter__(self) -> None:
        self._probe = self._breaker._enter()  # noqa: SLF001 - one thing in two classes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._breaker._leave(kind, probe=self._probe)  # noqa: SLF001 - the same
