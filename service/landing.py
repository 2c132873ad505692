"""What came in together goes out together: first all answers are made, then all are sent.

A system call leaves little of the caches to the code around it. Made in turns, an answer takes four times as long.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from service.lane_answers import Hit


class Moment(NamedTuple):
    """When answers are made, by both clocks."""

    monotonic: float
    wall: float


class Lander(Protocol):
    """One question whose value has been found."""

    def prepare(self, moment: Moment) -> Hit | None:
        """Makes the answer. It raises nothing."""
        ...

    def land(self, hit: Hit | None) -> None:
        """Sends it."""
        ...


class Landing:
    """Gathers what is found in one turn of the event loop. ``moment`` says when that is over, and ``sent`` is called
    when all is sent."""

    def __init__(self, moment: Callable[[], Moment], sent: Callable[[], None]) -> None:
        self._moment = moment
        self._sent = sent
        self._found: list[Lander] = []

    def add(self, lander: Lander) -> None:
        """Answers it when the turn is over."""
        if not self._found:
            asyncio.get_running_loop().call_soon(self._land)
        self._found.append(lander)

    def _land(self) -> None:
        found, self._found = self._found, []
        moment = self._moment()
        for lander, hit in [(lander, lander.prepare(moment)) for lander in found]:
            lander.land(hit)
        self._sent()
