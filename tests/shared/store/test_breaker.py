"""The circuit breaker, on a clock that stands still."""

import asyncio

import pytest

from shared.errors import StoreDown, StoreRefused
from shared.store.breaker import BreakerState, CircuitBreaker
from shared.testing.clock import FrozenClock


def _fail(breaker: CircuitBreaker, error: BaseException | None = None) -> None:
    error = error or StoreDown("gone")
    with pytest.raises(type(error)), breaker.guard():
        raise error


def _succeed(breaker: CircuitBreaker) -> None:
    with breaker.guard():
        pass


def _opened(clock: FrozenClock) -> CircuitBreaker:
    breaker = CircuitBreaker(3, 10, clock)
    for _ in range(3):
        _fail(breaker)
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    """A success in between starts the count anew."""
    breaker = CircuitBreaker(3, 10, FrozenClock())
    _fail(breaker)
    _fail(breaker)
    _succeed(breaker)
    _fail(breaker)
    _fail(breaker)
    assert breaker.state is BreakerState.CLOSED
    _fail(breaker)
    assert breaker.state is BreakerState.OPEN


def test_while_open_nothing_is_asked() -> None:
    """The caller has its answer at once, and the store its peace."""
    breaker = _opened(FrozenClock())
    with pytest.raises(StoreDown, match="several times in a row"), breaker.guard():
        pytest.fail("it was asked")


def test_one_call_tries_when_the_time_is_over() -> None:
    """The others still have their answer at once, until the one knows; its success closes the breaker."""
    clock = FrozenClock()
    breaker = _opened(clock)
    clock.advance(10)
    assert breaker.state is BreakerState.PROBING
    with breaker.guard(), pytest.raises(StoreDown, match="several times"), breaker.guard():
        pytest.fail("it was asked twice")
    assert breaker.state is BreakerState.CLOSED
    _succeed(breaker)


def test_a_failed_try_opens_it_again() -> None:
    """The pause is counted from the last failure."""
    clock = FrozenClock()
    breaker = _opened(clock)
    clock.advance(10)
    _fail(breaker)
    clock.advance(9)
    assert breaker.state is BreakerState.OPEN


def test_a_cancelled_try_leaves_the_way_free() -> None:
    """A caller that went away has learnt nothing: the next one may try."""
    clock = FrozenClock()
    breaker = _opened(clock)
    clock.advance(10)
    _fail(breaker, asyncio.CancelledError())
    assert breaker.state is BreakerState.PROBING
    _succeed(breaker)
    assert breaker.state is BreakerState.CLOSED


def test_a_refusal_is_an_answer() -> None:
    """A store that says no is not dead: the next call may ask it."""
    breaker = CircuitBreaker(1, 10, FrozenClock())
    _fail(breaker, StoreRefused("OOM"))
    assert breaker.state is BreakerState.CLOSED
