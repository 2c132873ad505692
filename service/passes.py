"""What a request is let in with: whose it is, and how many rows it holds until it leaves."""

from collections import defaultdict
from typing import TYPE_CHECKING

from starlette.types import Scope

from shared.errors import Overloaded
from shared.metrics import Metrics

if TYPE_CHECKING:
    from service.guard import Guard

RETRY_SECONDS = 1.0
"""Rows in work are answered within the deadline, most of them long before."""
ROWS, ROWS_PER_KEY = "rows", "rows_per_key"


class Pass:
    """One request that was let in. ``key``: the name of its key, None where none was asked for."""

    __slots__ = ("_guard", "key", "rows")

    def __init__(self, guard: "Guard | None", key: str | None, rows: int) -> None:
        self._guard = guard
        self.key = key
        self.rows = rows

    @property
    def is_counted(self) -> bool:
        """Whether it counts for the limits."""
        return self._guard is not None

    async def hold(self, rows: int) -> None:
        """It turned out to have so many rows. Overloaded or TooManyRequests where that is too many."""
        more = rows - self.rows
        if self._guard is not None and more > 0:
            await self._guard.add(self, more)

    def void(self) -> None:
        """It was not let in after all."""
        self.rows, rows = 0, self.rows
        if self._guard is not None:
            self._guard.release(self.key, rows)

    def leave(self) -> None:
        """The request is answered, or nobody waits for it any more. Once."""
        if self._guard is not None:
            self._guard.left(self)


class Room:
    """Rows in work at once: of all callers, and of each key."""

    def __init__(self, rows: int | None, rows_per_key: int | None) -> None:
        self._most = {ROWS: rows, ROWS_PER_KEY: rows_per_key}
        self._all = 0
        self._of_key: defaultdict[str, int] = defaultdict(int)

    @property
    def rows(self) -> int:
        """In work now."""
        return self._all

    def take(self, name: str, rows: int, metrics: Metrics) -> None:
        """Overloaded where there is no room. Where nothing is in work, any number is taken: no request is too large."""
        for reason, taken in ((ROWS_PER_KEY, self._of_key[name]), (ROWS, self._all)):
            most = self._most[reason]
            if most is not None and taken and taken + rows > most:
                metrics.refused(reason)
                raise Overloaded(
                    f"more than {most} rows would be in work at once (FORESCORE_LIMITS__{reason.upper()}); "
                    "try again later",
                    retry_after=RETRY_SECONDS,
                )
        self._all += rows
        self._of_key[name] += rows

    def give_back(self, name: str, rows: int) -> None:
        """They are done."""
        self._all -= rows
        self._of_key[name] -= rows
        if not self._of_key[name]:
            del self._of_key[name]


def pass_of(scope: Scope) -> Pass | None:
    """The request's, if there is a guard."""
    found: Pass | None = scope["state"].get("pass")
    return found
