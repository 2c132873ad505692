"""What a check finds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

Case = TypeVar("Case")


class Level(StrEnum):
    """How bad it is. ``failure``: scores are wrong, missing or late, or will be at the next run."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that was found, with its numbers, and what to do about it."""

    level: Level
    found: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Check(Generic[Case]):
    """A question. ``look`` gives one verdict or several; ``looks_at`` says where the answer comes from."""

    name: str
    looks_at: str
    look: Callable[[Case], Iterable[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A verdict under the name of its check."""

    check: str
    level: Level
    looked_at: str
    found: str
    next_step: str


class NotLooked(Exception):
    """There is nothing to look at, or nothing to be seen: its text says why. It never leaves this package."""


def not_told(what: str) -> NotLooked:
    """The server does not answer this question to this user."""
    return NotLooked(f"the store does not tell {what} to this user; see docs/security.md for the doctor's rules")


def nothing_active() -> NotLooked:
    """What is served cannot be looked at."""
    return NotLooked("no snapshot is active")


def ok(found: str) -> Verdict:
    """As it should be."""
    return Verdict(Level.OK, found)


def note(found: str, next_step: str = "") -> Verdict:
    """Good to know."""
    return Verdict(Level.NOTE, found, next_step)


def warning(found: str, next_step: str) -> Verdict:
    """It holds today."""
    return Verdict(Level.WARNING, found, next_step)


def failure(found: str, next_step: str) -> Verdict:
    """It does not hold."""
    return Verdict(Level.FAILURE, found, next_step)


def mebibytes(count: float) -> str:
    """Bytes for people."""
    return f"{count / 1024**2:,.1f} MiB"
