"""How many rows in how much time: of all callers together, and of each key. Refuses with what HTTP says of it.

The fields are those of draft-ietf-httpapi-ratelimit-headers: RateLimit-Policy names every limit with its rows (``q``)
and seconds (``w``); RateLimit tells of the one that is reached how many are left (``r``) and for how long (``t``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from limits import RateLimitItem, parse_many

from service.windows import Windows
from shared.errors import TooManyRequests
from shared.settings import LimitSettings

Window = tuple[int, float, int, float]
"""Rows of the previous window and its seconds to live, and the same of the current one."""
RATE, RATE_PER_KEY = "rate", "rate_per_key"
"""The reasons, named as the settings are."""


class SharedWindows(Protocol):
    """Counts that all workers share. StoreError where they cannot be had just now."""

    async def acquire(self, key: str, limit: int, seconds: int, rows: int) -> bool:
        """Takes the rows, if they are within the limit."""
        ...

    async def window(self, key: str, seconds: int) -> Window:
        """What was taken."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One limit. ``reason`` is the setting that made it; ``label`` names it to callers."""

    reason: str
    label: str
    rows: int
    seconds: int

    def key(self, name: str) -> str:
        """Under which its rows are counted."""
        whose = name if self.reason == RATE_PER_KEY else ""
        return f"{self.reason}:{self.rows}:{self.seconds}:{whose}"

    def said(self) -> str:
        return f'"{self.label}";q={self.rows};w={self.seconds}'


def policies_of(settings: LimitSettings) -> list[Policy]:
    """Those of the key first: who is over his own limit takes nothing from what is for all."""
    return [*_policies(RATE_PER_KEY, settings.rate_per_key), *_policies(RATE, settings.rate)]


class Rates:
    """Rates that this process counts for itself."""

    def __init__(self, policies: Sequence[Policy], windows: Windows) -> None:
        self._policies = policies
        self._windows = windows
        self._keys: dict[str, list[tuple[Policy, str]]] = {}

    def take(self, name: str, rows: int) -> None:
        """TooManyRequests where a limit is reached; nothing is taken then."""
        policies = self._keys.get(name) or self._of(name)
        for place, (policy, key) in enumerate(policies):
            if not self._windows.acquire_sliding_window_entry(key, policy.rows, policy.seconds, rows):
                for earlier, taken in policies[:place]:
                    self._windows.give_back(taken, rows, earlier.seconds)
                raise refusal(policy, self._policies, self._windows.get_sliding_window(key, policy.seconds), rows)

    def _of(self, name: str) -> list[tuple[Policy, str]]:
        found = self._keys[name] = [(policy, policy.key(name)) for policy in self._policies]
        return found


class SharedRates:
    """Rates that all workers count together. A limit that is reached last leaves its rows with those before it."""

    def __init__(self, policies: Sequence[Policy], windows: SharedWindows) -> None:
        self._policies = policies
        self._windows = windows

    async def take(self, name: str, rows: int) -> None:
        """TooManyRequests where a limit is reached; StoreError where nobody knows."""
        for policy in self._policies:
            key = policy.key(name)
            if not await self._windows.acquire(key, policy.rows, policy.seconds, rows):
                raise refusal(policy, self._policies, await self._windows.window(key, policy.seconds), rows)


def refusal(policy: Policy, policies: Sequence[Policy], window: Window, rows: int) -> TooManyRequests:
    """Says how many rows are left, and when there will be room for these."""
    previous, previous_left, current, _ = window
    left = max(0, policy.rows - current - int(previous * previous_left / policy.seconds))
    wait = seconds_until(policy, window, rows)
    setting = f"FORESCORE_LIMITS__{policy.reason.upper()}"
    advice = "send fewer in one request" if wait is None else "try again later"
    return TooManyRequests(
        f"more than {policy.rows} rows in {policy.seconds} s ({setting}); {advice}",
        retry_after=wait,
        policy=", ".join(one.said() for one in policies),
        state=f'"{policy.label}";r={left};t={ceil(wait if wait is not None else policy.seconds)}',
        reason=policy.reason,
    )


def seconds_until(policy: Policy, window: Window, rows: int) -> float | None:
    """When so many rows are within the limit if nobody takes any until then; None: never.

    A window that is past counts with the share of it that is still within reach, so that it fades evenly.
    """
    previous, previous_left, current, current_left = window
    room = policy.rows - rows
    if room < 0:
        return None
    if current <= room:
        return max(0.0, previous_left - policy.seconds * (room - current) / previous) if previous else 0.0
    return max(0.0, current_left - policy.seconds) + policy.seconds * (1 - room / current)


def _policies(reason: str, text: str) -> list[Policy]:
    items: list[RateLimitItem] = parse_many(text) if text else []
    label = "key" if reason == RATE_PER_KEY else "all"
    return [
        Policy(
            reason=reason,
            label=label if len(items) == 1 else f"{label}-{item.GRANULARITY.name}",
            rows=item.amount,
            seconds=item.get_expiry(),
        )
        for item in items
    ]
