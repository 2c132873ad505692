"""How many threads one forward pass uses: one number, ``FORESCORE_THREADS``, for every library below it."""

import os

from shared.settings import Settings


def pass_threads(settings: Settings) -> int:
    """One for a pass unless told otherwise: a request is one tile, which several threads only wait for one another to
    share (seen on two busy cores: 0.7 ms a row with one, 10.8 ms with two). Each worker has as many of its own."""
    return settings.threads or 1


def settle_threads(settings: Settings) -> None:
    """Settles it before torch is loaded: OpenMP and MKL read these once, and would take every core for each worker."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(pass_threads(settings))
