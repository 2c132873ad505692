"""A range of partitions, ``first..last``: both ends are in it, and either may be left open.

Values compare as dates or times if all of them are, else as numbers if all are, else as text. An end that is a date
takes all times of its day.
"""

from collections.abc import Callable, Collection
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from shared.errors import SettingsError

MARK = ".."

_KINDS: tuple[tuple[str, str], ...] = (("dates", "2026-11-01"), ("numbers", "12"))


def members(text: str, values: Collection[str], key: str) -> frozenset[str]:
    """Those of the values that lie in the range; SettingsError if it cannot be one of values such as these."""
    first, _, last = text.partition(MARK)
    if not (first or last):
        raise SettingsError(f"--partition {key}={MARK}: name at least one end, for example {key}=2026-11-01{MARK}")
    for kind, example in _KINDS:
        read = _READ[kind]
        if values and all(read(value) is not None for value in values):
            _require_ends(
                (first, last), read, f"--partition {key}={text[:80]}: the values of {key} are {kind}", example
            )
            return _between(first, last, values, read, key)
    return _between(first, last, values, str, key)


def _between(first: str, last: str, values: Collection[str], read: Callable[[str], Any], key: str) -> frozenset[str]:
    low, high = (read(end) if end else None for end in (first, last))
    if low is not None and high is not None and _at(low, high) > high:
        raise SettingsError(f"--partition {key}={first[:40]}{MARK}{last[:40]}: it ends before it begins")
    found = ((value, read(value)) for value in values)
    return frozenset(
        value
        for value, read_value in found
        if (low is None or _at(read_value, low) >= low) and (high is None or _at(read_value, high) <= high)
    )


def _at(value: Any, end: Any) -> Any:
    """The value as precise as the end: a time compares with a date by its day."""
    if isinstance(value, datetime) and not isinstance(end, datetime):
        return value.date()
    if isinstance(end, datetime) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


def _require_ends(ends: tuple[str, str], read: Callable[[str], Any], rule: str, example: str) -> None:
    if any(end and read(end) is None for end in ends):
        raise SettingsError(f"{rule}, so write its ends as {example}")


def _moment(text: str) -> date | datetime | None:
    """A date, or a time in UTC; None if it is neither in ISO form."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


_READ: dict[str, Callable[[str], Any]] = {"dates": _moment, "numbers": _number}
