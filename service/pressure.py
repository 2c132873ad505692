"""Refuses what is too much, by itself: no limit has to be set, since the service feels when there is too much.

What it feels is a standing delay of the event loop: each turn of it takes longer than it should, again and again.
Bursts and pauses delay one turn or a few, each shorter than the one before; a slow store or source delays none; and a
turn that is late because others took the processor is not its own work. What it does about it is to bound the requests
in work. A turn takes as long as there are requests in it, so that the bound follows the delay in proportion. When it
has not been needed for a while it is gone.

Hits are spared, and do not count: one costs little more than its refusal, and each connection has one at a time.

That a delay only counts while it stands is the rule of CoDel (RFC 8289), by which routers keep their queues short.
"""

import asyncio
import sys
from collections.abc import Callable

import structlog

from shared.clock import Clock
from shared.telemetry import Logger

BEAT_SECONDS = 0.02
LOOK_SECONDS = 0.2
MIN_BEATS = 2
"""Of one look: one turn alone, however long, is a pause."""
STEADY_SHARE = 0.8
"""A delay below this share of the one before goes away by itself."""
MOST_CUT, LEAST_CUT = 0.3, 0.9
GROWTH, CAREFUL_GROWTH = 1.25, 1.05
AIM = 0.4
"""Of the delay that is too much: what is aimed at once it was. Short of it, a busy hour is left alone; beyond it, those
who are let in are answered soon."""
FEWEST = 8
"""Requests in work that are always allowed: where they are slow, it is not because of their number."""
CALM_LOOKS = 5
"""Without a refusal, after which the bound is gone."""
UNBOUNDED = sys.maxsize

_log: Logger = structlog.get_logger()


class Pressure:
    """Counts requests in work, and bounds them while the event loop is late by more than ``most_delay`` seconds.

    ``told`` hears after each look: the delay, the bound if there is one, and how many were refused since the last.
    """

    __slots__ = (
        *(
            "_beats",
            "_before",
            "_calm",
            "_due",
            "_least",
            "_most",
            "_most_delay",
            "_refused",
            "_since",
            "_told",
            "_worked",
        ),
        *("in_work", "limit"),
    )

    def __init__(self, most_delay: float, told: Callable[[float, int | None, int], object]) -> None:
        self.in_work = 0
        self.limit = UNBOUNDED
        self._most_delay = most_delay
        self._told = told
        self._most = self._refused = self._beats = self._calm = 0
        self._due: float | None = None
        self._since = self._worked = 0.0
        self._least = float("inf")
        self._before = 0.0

    def begin(self) -> bool:
        """Takes one more request into work. False where that would be too many."""
        if self.in_work >= self.limit:
            return False
        self.in_work += 1
        if self.in_work > self._most:  # noqa: PLR1730 - on the way of each request
            self._most = self.in_work
        return True

    def end(self) -> None:
        """One is not in work any more: answered, or nobody waits for it."""
        self.in_work -= 1

    def refused(self) -> None:
        """One was too much, and was told so."""
        self._refused += 1

    async def watch(self, clock: Clock, worked: Clock) -> None:
        """Feels, until it is cancelled. ``worked``: for how long the thread of the event loop has computed."""
        while True:
            self.beat(clock.now(), worked.now())
            await asyncio.sleep(BEAT_SECONDS)

    def beat(self, now: float, worked: float) -> None:
        """Due every ``BEAT_SECONDS``: how late it comes is the delay of this turn, as far as it has worked."""
        if self._due is None:
            self._since = now
        else:
            self._beats += 1
            self._least = min(self._least, max(0.0, min(now - self._due, worked - self._worked)))
            if now - self._since >= LOOK_SECONDS and self._beats >= MIN_BEATS:
                self._look(now)
        self._due, self._worked = now + BEAT_SECONDS, worked

    def _look(self, now: float) -> None:
        """The least delay of several turns is the one that stands."""
        delay, before = self._least, self._before
        is_refusing = self.limit != UNBOUNDED and self._refused
        bearable = AIM * self._most_delay if is_refusing else self._most_delay
        if delay <= bearable:
            self._grow(delay)
        elif before > bearable and delay >= STEADY_SHARE * before:
            self._shrink(delay)
        self._told(delay, None if self.limit == UNBOUNDED else self.limit, self._refused)
        self._before, self._least, self._since = delay, float("inf"), now
        self._beats = self._refused = 0
        self._most = self.in_work

    def _shrink(self, delay: float) -> None:
        if self.limit == UNBOUNDED:
            _log.warning("too much is asked: refusing some of it", delay_ms=round(delay * 1000), in_work=self._most)
        self._calm = 0
        share = min(LEAST_CUT, max(MOST_CUT, AIM * self._most_delay / delay))
        self.limit = max(FEWEST, int(share * min(self._most, self.limit)))

    def _grow(self, delay: float) -> None:
        if self.limit == UNBOUNDED:
            return
        self._calm = 0 if self._refused else self._calm + 1
        if self._calm >= CALM_LOOKS:
            self.limit = UNBOUNDED
            _log.info("no more is asked than can be answered")
        elif self._refused:
            self.limit += max(
                1, int(((GROWTH if delay < AIM * self._most_delay / 2 else CAREFUL_GROWTH) - 1) * self.limit)
            )
