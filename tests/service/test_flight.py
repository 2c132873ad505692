"""Single flight: computed once for all who ask, for the server's account."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest
from support.polling import eventually

from service.flight import MAX_HELD, Flight, Flights, Key
from shared.errors import ScoringError
from shared.testing.clock import FrozenClock


class Work:
    """Counts how often it is begun; ends when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, flight: Flight[int]) -> Mapping[Key, int]:
        self.begun += 1
        turn = self.begun
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return dict.fromkeys(flight.entities, turn)


def run(story: Callable[[Flights[int], FrozenClock, Work], Awaitable[None]]) -> None:
    async def told() -> None:
        clock = FrozenClock()
        flights: Flights[int] = Flights(5, clock)
        async with asyncio.timeout(30):
            await story(flights, clock, Work())
            await flights.close()

    asyncio.run(told())


def test_whoever_asks_meanwhile_joins() -> None:
    """One computation, and its result for everybody; afterwards there is nothing to join."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        flight = flights.start("1-A", ["a", "b"], work)
        assert flights.find("1-A", "a") is flights.find("1-A", "b") is flight
        work.go.set()
        assert await flight.results() == {"a": 1, "b": 1}
        assert flights.find("1-A", "a") is None

    run(story)


def test_another_snapshot_is_another_question() -> None:
    """What is computed beside one snapshot is not for those who ask beside the next."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        old = flights.start("1-A", ["a"], work)
        assert flights.find("1-B", "a") is None
        new = flights.start("1-B", ["a"], work)
        assert flights.find("1-B", "a") is new
        assert not flights.is_current(old, "a")

    run(story)


def test_the_first_caller_goes_away() -> None:
    """He is cancelled, the work is not: the others have their answer."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        flight = flights.start("1-A", ["a"], work)
        callers = [asyncio.ensure_future(flight.results()) for _ in range(3)]
        await asyncio.sleep(0)
        callers[0].cancel()
        await asyncio.sleep(0)
        work.go.set()
        assert [await one for one in callers[1:]] == [{"a": 1}, {"a": 1}]
        assert callers[0].cancelled()

    run(story)


def test_all_callers_go_away() -> None:
    """The work ends all the same, also badly, and leaves nothing behind."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        work.error = ScoringError("no")
        caller = asyncio.ensure_future(flights.start("1-A", ["a"], work).results())
        await asyncio.sleep(0)
        caller.cancel()
        work.go.set()
        await eventually(lambda: flights.find("1-A", "a") is None)

    run(story)


def test_a_failure_is_told_to_those_who_wait_and_to_nobody_later() -> None:
    """An error to each of them; the next caller computes."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        work.error = ScoringError("no")
        work.go.set()
        flight = flights.start("1-A", ["a"], work)
        found = await asyncio.gather(*(flight.results() for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [ScoringError] * 3
        assert flights.find("1-A", "a") is None
        work.error = None
        assert await flights.start("1-A", ["a"], work).results() == {"a": 2}

    run(story)


def test_an_old_computation_is_not_joined() -> None:
    """Above the greatest age a caller computes anew, and the old one's end does not end his."""

    async def story(flights: Flights[int], clock: FrozenClock, work: Work) -> None:
        old = flights.start("1-A", ["a"], work)
        clock.advance(5)
        assert flights.find("1-A", "a") is old
        clock.advance(0.1)
        assert flights.find("1-A", "a") is None
        new = flights.start("1-A", ["a"], Work())
        work.go.set()
        await old.results()
        assert flights.find("1-A", "a") is new

    run(story)


def test_new_features_overtake() -> None:
    """Once an entity's features have changed, nobody joins, and the flight knows that it is overtaken."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        flight = flights.start("1-A", ["a", "b"], work)
        flights.forget("a")
        assert flights.find("1-A", "a") is None
        assert (flights.is_current(flight, "a"), flights.is_current(flight, "b")) == (False, True)

    run(story)


def test_closing_ends_what_is_under_way() -> None:
    """No task outlives the service."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        flight = flights.start("1-A", ["a"], work)
        await flights.close()
        with pytest.raises(asyncio.CancelledError):
            await flight.results()

    run(story)


def test_callers_of_one_turn_share_a_flight() -> None:
    """Each has boarded with an entity of his own; whoever comes after the departure begins the next."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        first = flights.board("1-A", ["a"], work)
        assert flights.board("1-A", ["b", "c"], work) is first
        assert flights.find("1-A", "b") is first
        await eventually(lambda: work.begun == 1)
        second = flights.board("1-A", ["d"], work)
        work.go.set()
        assert await first.results() == {"a": 1, "b": 1, "c": 1}
        assert await second.results() == {"d": 2}

    run(story)


def test_nobody_boards_a_flight_of_another_snapshot() -> None:
    """What is computed together belongs to one snapshot, and what has given features goes alone."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        work.go.set()
        old, new = flights.board("1-A", ["a"], work), flights.board("1-B", ["b"], work)
        alone = flights.start("1-B", ["c"], work)
        found = [await flight.results() for flight in (old, new, alone)]
        assert [set(one) for one in found] == [{"a"}, {"b"}, {"c"}]

    run(story)


def test_results_are_held_for_those_who_looked_before() -> None:
    """For so many seconds after the end, and only those that the work wants held."""

    async def story(flights: Flights[int], clock: FrozenClock, work: Work) -> None:
        flight = await _held(flights, work, ["a", "b"], held={"a"})
        assert flights.find("1-A", "a") is flight
        assert await flight.results() == {"a": 1, "b": 1}
        assert flights.find("1-A", "b") is flights.find("1-B", "a") is None
        clock.advance(5.1)
        assert flights.find("1-A", "a") is None

    run(story)


def test_new_features_end_what_is_held() -> None:
    """A result from the old ones is nobody's any more."""

    async def story(flights: Flights[int], _clock: FrozenClock, work: Work) -> None:
        await _held(flights, work, ["a"], held={"a"})
        flights.forget("a")
        assert flights.find("1-A", "a") is None

    run(story)


def test_what_is_held_is_bounded() -> None:
    """Of too many results, and of those that are old, nothing is left behind."""

    async def story(flights: Flights[int], clock: FrozenClock, work: Work) -> None:
        await _held(flights, work, ["a"], held={"a"})
        many = [str(number) for number in range(MAX_HELD)]
        flight = await _held(flights, work, many, held=set(many))
        assert flights.find("1-A", "a") is None
        assert flights.find("1-A", many[-1]) is flight
        clock.advance(5.1)
        await _held(flights, work, ["z"], held=set())
        assert not flights.is_current(flight, many[0])

    run(story)


async def _held(flights: Flights[int], work: Work, entities: list[str], held: set[str]) -> Flight[int]:
    work.go.set()
    flight = flights.start("1-A", entities, work)
    flight.held |= held
    await flight.results()
    return flight
