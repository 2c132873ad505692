"""Rates of rows: what a limit lets through, what it says when it does not, and when it does again."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.servers import dead_port

from service.rates import Rates, SharedRates, policies_of
from service.windows import Windows
from shared.errors import StoreError, TooManyRequests
from shared.settings import LimitSettings, RedisSettings, Settings
from shared.store.connect import open_rate_windows
from shared.testing.clock import FrozenClock


def _rates(clock: FrozenClock, **limits: str) -> Rates:
    return Rates(policies_of(LimitSettings(**limits)), Windows(clock))


def test_rows_are_counted_and_not_requests() -> None:
    """A list of 8 rows takes 8; one row more than the limit is refused, and takes nothing."""
    rates = _rates(FrozenClock(1000), rate="10/second")
    rates.take("a", 8)
    with pytest.raises(TooManyRequests):
        rates.take("b", 3)
    rates.take("b", 2)
    with pytest.raises(TooManyRequests):
        rates.take("a", 1)


def test_each_name_has_its_own_and_all_share_one() -> None:
    """One who is over his own limit takes nothing from the others; a limit for all holds for all together."""
    rates = _rates(FrozenClock(1000), rate="6/second", rate_per_key="4/second")
    rates.take("a", 4)
    with pytest.raises(TooManyRequests) as of_key:
        rates.take("a", 1)
    rates.take("b", 2)
    with pytest.raises(TooManyRequests) as of_all:
        rates.take("b", 1)
    assert [of_key.value.reason, of_all.value.reason] == ["rate_per_key", "rate"]
    assert of_all.value.policy == '"key";q=4;w=1, "all";q=6;w=1'
    assert of_all.value.state.startswith('"all";r=0;t=')


def test_what_all_refuse_is_not_taken_from_the_key() -> None:
    """A refusal by the limit for all leaves the key's own rows as they were."""
    clock = FrozenClock(1000)
    rates = _rates(clock, rate="4/second", rate_per_key="4/minute")
    rates.take("a", 4)
    for _ in range(3):
        with pytest.raises(TooManyRequests):
            rates.take("b", 3)
    clock.time = 1002
    rates.take("b", 4)


def test_more_than_a_limit_ever_allows_has_no_time() -> None:
    """No Retry-After for what will never fit."""
    with pytest.raises(TooManyRequests, match="fewer") as raised:
        _rates(FrozenClock(1000), rate="10/second").take("a", 11)
    assert raised.value.retry_after is None


@given(
    takes=st.lists(st.tuples(st.floats(0, 3), st.integers(1, 12)), min_size=1, max_size=30),
    rows=st.integers(1, 10),
)
def test_when_it_says_there_is_room_there_is(takes: list[tuple[float, int]], rows: int) -> None:
    """Whoever waits as long as he was told to gets in, if nobody came before him; so does nobody wait for ever."""
    clock = FrozenClock(1000)
    rates = _rates(clock, rate="10/second")
    for pause, taken in takes:
        clock.advance(pause)
        try:
            rates.take("a", taken)
        except TooManyRequests:
            continue
    try:
        rates.take("a", rows)
    except TooManyRequests as error:
        later = error.retry_after or 0.0
    else:
        return
    assert later <= 2
    clock.advance(later + 1e-6)
    rates.take("a", rows)


@given(takes=st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 5)), max_size=60))
def test_no_window_lets_twice_its_rows_through(takes: list[tuple[float, int]]) -> None:
    """In any window, however it lies, fewer than twice the limit's rows come through."""
    clock = FrozenClock(1000)
    rates = _rates(clock, rate="10/second")
    through: list[tuple[float, int]] = []
    for pause, rows in takes:
        clock.advance(pause)
        try:
            rates.take("a", rows)
        except TooManyRequests:
            continue
        through.append((clock.now(), rows))
    for start, _ in through:
        assert sum(rows for at, rows in through if start <= at < start + 1) < 20


def test_a_store_that_is_gone_is_an_error_of_the_store() -> None:
    """The guard can tell it from a limit that is reached."""
    settings = Settings(redis=RedisSettings(url=f"redis://127.0.0.1:{dead_port()}"))

    async def story() -> None:
        async with open_rate_windows(settings, FrozenClock()) as windows:
            with pytest.raises(StoreError):
                await SharedRates(policies_of(LimitSettings(rate="1/second")), windows).take("a", 1)

    asyncio.run(story())
