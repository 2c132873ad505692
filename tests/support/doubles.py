"""Models that misbehave, to be opened in a process of their own too: this module is importable there."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event

import numpy as np

from shared.encode import Encoded

HANGS = 666.0
DIES = 667.0
RAISES = 668.0


@dataclass(frozen=True)
class Misbehaving:
    """Scores the first number of each row by itself, but hangs, dies or raises at those values.

    It dies only in the quarantine: in the test's own process that would end the test. ``mark`` is what it says there
    before, on standard error as native code does.
    """

    test_process: int
    mark: str = ""
    golden_digest: str = "g" * 64

    def score(self, encoded: Encoded) -> np.ndarray:
        values = encoded.numeric[:, 0]
        if self.mark and np.isin(values, (HANGS, DIES, RAISES)).any() and os.getpid() != self.test_process:
            os.write(2, self.mark.encode())
        if (values == HANGS).any():
            Event().wait()
        if (values == DIES).any() and os.getpid() != self.test_process:
            os._exit(11)
        if (values == RAISES).any():
            raise RuntimeError(self.mark or "no")
        return values[:, None].astype(np.float32)


def misbehaving(mark: str = "") -> Callable[[], Misbehaving]:
    """What opens one; it can be pickled."""
    return partial(Misbehaving, os.getpid(), mark)
