"""A run gives way to what serves on the same host: it takes what is left of the processors, and its children too."""

import os
from contextlib import suppress


def give_way(nice: int) -> None:
    """Gives this process at least that nice value, to the end of its life. 0: leaves it as it is.

    For the main thread, before others are started: they inherit it, as child processes do. SCHED_BATCH, where there is
    one, says besides that it computes: it does not interrupt those who wake up to answer somebody.
    """
    if not nice:
        return
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))
    if hasattr(os, "SCHED_BATCH"):
        with suppress(PermissionError):  # of a sandbox; the nice value holds without it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
