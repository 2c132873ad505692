"""How fresh a score a caller wants, in HTTP's own words; and what the service's cache says of its answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypedDict

NAME = "forescore"
"""The service's own name in ``Cache-Status``: a proxy before it may add one of its own."""


class Wishes(TypedDict, total=False):
    """What may be asked of any score. All are seconds or switches.

    ``max_age``: an older score is scored anew if it can be, and answered as old as it is if not. ``max_stale``: so much
    older than that will do. ``no_cache``: scored anew if it can be. ``only_if_cached``: never scored; NotCached where
    the cache has none that will do.
    """

    max_age: int
    max_stale: int
    no_cache: bool
    only_if_cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatus:
    """How the service's cache handled the question (RFC 9211). ``forwarded``: why it was scored online, None for a hit.

    ``stored``: the score is kept for the next question. ``collapsed``: another question had it computed already.
    ``detail``: such as ``not-rescored`` for an answer older than was wished.
    """

    forwarded: str | None = None
    stored: bool = False
    collapsed: bool = False
    detail: str | None = None

    @property
    def hit(self) -> bool:
        return self.forwarded is None

    @classmethod
    def parse(cls, header: str | None) -> Self | None:
        """None where the service's own member is not in the header."""
        for member in (header or "").split(","):
            name, *words = (word.strip() for word in member.split(";"))
            if name == NAME:
                told = {key: value for key, _, value in (word.partition("=") for word in words)}
                return cls(
                    forwarded=told.get("fwd"),
                    stored="stored" in told,
                    collapsed="collapsed" in told,
                    detail=told.get("detail"),
                )
        return None


def cache_control(wishes: Wishes) -> dict[str, str]:
    """The header that says it, if anything is wished. TypeError for a wish that cannot be."""
    words: list[str] = []
    for name, value in wishes.items():
        word = name.replace("_", "-")
        if word in {"max-age", "max-stale"}:
            words.append(f"{word}={_seconds(word, value)}")
        elif value:
            words.append(word)
    if "max_stale" in wishes and "max_age" not in wishes:
        raise TypeError("max_stale says how much older than max_age a score may be: give both")
    return {"cache-control": ", ".join(words)} if words else {}


def age_of(headers: Mapping[str, str]) -> int | None:
    """``Age``, in seconds."""
    text = headers.get("age", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _seconds(word: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{word.replace('-', '_')} is a whole number of seconds, 0 or more")
    return value
