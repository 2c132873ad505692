"""A clock of the machine that is wrong, for the processes of this project: their injected wall clock is set by a file.

The interpreter imports this by itself where its folder is on PYTHONPATH. DRILL_CLOCK names a file that holds by how
many seconds the clock is wrong; it is read at every look at the clock, so that it may jump while a process runs.
"""

import os
import sys
import time
from datetime import datetime, tzinfo
from pathlib import Path

from shared.clock import WallClock

_FILE = Path(os.environ["DRILL_CLOCK"])


def _now(_clock: object = None) -> float:
    return time.time() + float(_FILE.read_text())


class _Told(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.fromtimestamp(_now(), tz)


WallClock.now = _now  # type: ignore[method-assign,assignment]

if "schedule" in sys.orig_argv:  # the scheduler's library asks the machine by itself
    import apscheduler.executors.base
    import apscheduler.schedulers.base

    apscheduler.executors.base.datetime = apscheduler.schedulers.base.datetime = _Told
