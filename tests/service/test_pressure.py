"""The law by which requests are refused, on a clock that stands still: what is a standing delay, and what is none."""

from dataclasses import dataclass, field

import pytest

from service.pressure import BEAT_SECONDS, FEWEST, LOOK_SECONDS, UNBOUNDED, Pressure

TARGET = 0.05
PER_REQUEST = 0.001
"""How long a request keeps the event loop of this test busy."""


@dataclass
class Loop:
    """An event loop whose turns take as long as it is told, and what its pressure told of it."""

    told: list[tuple[float, int | None, int]] = field(default_factory=list)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.worked = 0.0
        self.pressure = Pressure(TARGET, lambda *what: self.told.append(what))
        self.pressure.beat(self.now, self.worked)

    def turn(self, seconds: float, *, off: float = 0.0) -> None:
        """One turn of the loop, at work and ``off`` the processor. The timer rings when it is over, or due."""
        self.worked += seconds
        self.now += max(BEAT_SECONDS, seconds + off)
        self.pressure.beat(self.now, self.worked)

    def turns(self, seconds: float, *, over: float) -> None:
        until = self.now + over
        while self.now < until:
            self.turn(seconds)

    def serve(self, asked: int) -> int:
        """A turn in which so many ask: those who are let in take their time, and are answered. How many were."""
        taken = 0
        for _ in range(asked):
            if self.pressure.begin():
                taken += 1
            else:
                self.pressure.refused()
        self.turn(taken * PER_REQUEST)
        for _ in range(taken):
            self.pressure.end()
        return taken


def take(pressure: Pressure, requests: int) -> None:
    for _ in range(requests):
        assert pressure.begin()


def test_a_standing_delay_bounds_what_is_in_work() -> None:
    """Turns that take too long, one after the other, are too many requests: some of the next ones are refused."""
    loop = Loop()
    take(loop.pressure, 100)
    loop.turns(0.2, over=2 * LOOK_SECONDS + 0.3)
    assert FEWEST <= loop.pressure.limit < 100
    assert not loop.pressure.begin()


@pytest.mark.parametrize("seconds", [0.06, 0.3, 5.0])
def test_a_pause_is_no_standing_delay(seconds: float) -> None:
    """One turn that takes long, however long, refuses nobody."""
    loop = Loop()
    take(loop.pressure, 100)
    for _ in range(5):
        loop.turn(seconds)
        loop.turns(0.0, over=3 * LOOK_SECONDS)
    assert loop.pressure.limit == UNBOUNDED


def test_a_burst_that_is_worked_off_is_no_standing_delay() -> None:
    """What came during a pause makes turns long that each are shorter than the last: it goes away by itself."""
    loop = Loop()
    take(loop.pressure, 1000)
    seconds = 3.0
    while seconds > TARGET / 2:
        loop.turn(seconds)
        seconds *= 0.7
    assert loop.pressure.limit == UNBOUNDED


def test_a_busy_machine_is_no_standing_delay() -> None:
    """Turns are late, each of them, because others have the processor: fewer requests would not make it better."""
    loop = Loop()
    take(loop.pressure, 100)
    for _ in range(50):
        loop.turn(TARGET * 0.9, off=1.0)
    assert loop.pressure.limit == UNBOUNDED


def test_turns_that_take_no_longer_than_they_may_refuse_nobody() -> None:
    """However many requests are in work: who waits for a slow store does not delay the loop."""
    loop = Loop()
    take(loop.pressure, 5000)
    loop.turns(TARGET, over=10)
    assert loop.pressure.limit == UNBOUNDED


def test_the_bound_comes_to_rest_where_the_delay_is_what_it_may_be() -> None:
    """Three times as many requests as can be answered: turns are about as long as is aimed at, and none is wasted."""
    loop = Loop()
    for _ in range(50):
        loop.serve(1000)
    later = [loop.serve(1000) for _ in range(100)]
    assert max(later) * PER_REQUEST <= 2 * TARGET
    assert min(later) * PER_REQUEST >= TARGET / 4


def test_some_are_always_let_in() -> None:
    """Where the loop is late for another reason, such as a busy machine, requests one at a time are still answered."""
    loop = Loop()
    take(loop.pressure, 3)
    loop.turns(1.0, over=60)
    assert loop.pressure.limit == FEWEST
    assert loop.pressure.begin()


def test_it_recovers_within_two_seconds() -> None:
    """When no more is asked than can be answered, nobody is refused any more, and soon there is no bound."""
    loop = Loop()
    for _ in range(100):
        loop.serve(1000)
    assert loop.pressure.limit < UNBOUNDED
    started = loop.now
    assert [loop.serve(20) for _ in range(10)] == [20] * 10
    while loop.pressure.limit != UNBOUNDED:
        loop.serve(20)
    assert loop.now - started < 2


def test_a_bound_that_became_too_narrow_grows_quickly() -> None:
    """Refused though nothing is late: within a second the bound is more than twice as wide."""
    loop = Loop()
    take(loop.pressure, 100)
    loop.turns(1.0, over=30)
    for _ in range(100):
        loop.pressure.end()
    narrow = loop.pressure.limit
    started = loop.now
    while loop.now < started + 1.2:
        loop.serve(40)
    assert loop.pressure.limit > 2 * narrow


def test_it_tells_what_it_sees() -> None:
    """Each look tells the delay that stands, the bound and the number of refusals since the last."""
    loop = Loop()
    take(loop.pressure, 100)
    loop.turns(0.2, over=1.2)
    assert not loop.pressure.begin()
    loop.pressure.refused()
    loop.turns(0.2, over=0.5)
    delay, limit, _ = loop.told[-1]
    assert delay == pytest.approx(0.2 - BEAT_SECONDS)
    assert limit == loop.pressure.limit
    assert loop.told[0][1] is None
    assert [refused for *_, refused in loop.told if refused] == [1]
