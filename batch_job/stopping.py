"""A run that is told to end (SIGTERM) ends as by Ctrl-C: in good order, its lease given back, and it can be resumed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def stopping_in_order() -> Iterator[None]:
    """While the block runs, SIGTERM raises KeyboardInterrupt in it. For the main thread."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not disturb what is put in order
    raise KeyboardInterrupt
