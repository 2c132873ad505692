"""Time, passed in: logic never asks the machine for it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds as a float: since the epoch (``WallClock``), or since some moment (``MonotonicClock``)."""

    def now(self) -> float: ...


class WallClock:
    """Epoch seconds; steps when the machine's clock is set."""

    def now(self) -> float:
        return time.time()


class MonotonicClock:
    """Seconds that only go forward: for spans, deadlines and pauses."""

    def now(self) -> float:
        return time.monotonic()


class ThreadClock:
    """For how long the thread that asks has computed: it stands still while others have the processor."""

    def now(self) -> float:
        return time.thread_time()
