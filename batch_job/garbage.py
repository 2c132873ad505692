"""What was there before the work began is left out of the collections of garbage meanwhile.

A full collection looks at every object that the libraries made when they were loaded: a tenth of a second in which no
other thread gets the interpreter.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def old_objects_left_out() -> Iterator[None]:
    """For the block or the function, and for all threads. Where somebody has done so already, it stays as it is."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
