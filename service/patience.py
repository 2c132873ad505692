"""How long a caller waits, as he says himself. It can shorten the service's own deadline, and never lengthen it."""

import re
from contextlib import AbstractAsyncContextManager

from starlette.requests import Request

from service.deadline import within
from shared.errors import BadRequest

HEADER = "X-Request-Timeout"
RAW = HEADER.lower().encode()
"""As it comes over the wire."""
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def deadline_of(request: Request, milliseconds: int, spent: float = 0.0) -> AbstractAsyncContextManager[float]:
    """``within`` the service's ``milliseconds``, or the fewer that the request allows. BadRequest where it says none.

    Both count from when the request is there; ``spent``: seconds that are gone since.
    """
    told = request.headers.get(HEADER)
    if told is None:
        return within(milliseconds, spent)
    own = _milliseconds(told)
    if own is None:
        raise BadRequest(f"{HEADER} is a number of seconds above 0, such as 0.25")
    return within(milliseconds, spent) if own >= milliseconds else within(own, spent, said_by=HEADER)


def waits_for(told: str, milliseconds: float) -> bool:
    """Whether a caller who says ``told`` waits so long."""
    own = _milliseconds(told)
    return own is not None and own > milliseconds


def _milliseconds(told: str) -> float | None:
    """None where it is no decimal number above 0."""
    return float(told) * 1000 or None if _SECONDS.fullmatch(told) else None
