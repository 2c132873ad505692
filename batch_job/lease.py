"""The right to publish, held for a block."""

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from shared.clock import Clock, MonotonicClock
from shared.errors import LeaseHeld, StoreError
from shared.snapshot import Lease
from shared.store.interfaces import Leases

_RETRY_SECONDS = 0.25
_TURNS = 5  # holders that may come in between
_STOPWATCH = MonotonicClock()


@contextmanager
def held_lease(
    leases: Leases,
    what: str,
    seconds: float,
    *,
    take_over: bool = False,
    stopwatch: Clock = _STOPWATCH,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Lease]:
    """Holds the lease, which lapses ``seconds`` after its last renewal.

    Waits for as long as a holder that died may still have it; then LeaseHeld names who has. With ``take_over`` it is
    taken from whoever has it, at once: that one is fenced, and cannot flip the pointer any more.
    """
    holder = f"{whoami()} {what}"
    lease = _taken(leases, holder, seconds) if take_over else _acquired(leases, holder, seconds, stopwatch, sleep)
    try:
        yield lease
    finally:
        with suppress(StoreError):  # it lapses by itself; the error that ends the block must not be hidden
            leases.release(lease)


def whoami() -> str:
    """Who does this, for manifests, leases and the history: ``user@host pid``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} {os.getpid()}"


def _taken(leases: Leases, holder: str, seconds: float) -> Lease:
    present: str | None = None
    for _ in range(_TURNS):
        try:
            return leases.acquire(holder, seconds, instead_of=present)
        except LeaseHeld as error:
            present = error.holder
    raise LeaseHeld(f"the lease passes from one to the next, now {present}; try again", holder=present or "")


def _acquired(leases: Leases, holder: str, seconds: float, stopwatch: Clock, sleep: Callable[[float], None]) -> Lease:
    deadline = stopwatch.now() + seconds + 1
    while True:
        try:
            return leases.acquire(holder, seconds)
        except LeaseHeld:
            if stopwatch.now() >= deadline:
                raise
        sleep(_RETRY_SECONDS)
