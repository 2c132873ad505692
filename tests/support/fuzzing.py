"""How much is thrown: a little in ``make test``, the same each time; FUZZ times as much in ``make fuzz``, at random."""

import os
from typing import Any

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("FUZZ", "1"))


def budget(examples: int, **more: Any) -> settings:
    """Settings of one property test. A run without FUZZ is the same each time: what it finds, it finds for all."""
    return settings(
        max_examples=examples * TIMES,
        deadline=None,
        derandomize=TIMES == 1,
        suppress_health_check=list(HealthCheck),
        **more,
    )
