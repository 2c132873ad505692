"""How fresh a score a caller wants: the request's ``Cache-Control`` (RFC 9111, section 5.2.1)."""

import re
from dataclasses import dataclass
from typing import Self

_DIRECTIVE = re.compile(r'(?:^|,)\s*+([A-Za-z-]++)\s*+(?:=\s*+(?:"([^"]*+)"|([^\s,"]*+)))?+\s*+(?=,|$)')
"""Possessive throughout: a header made to be slow to read costs no more than any other."""
_SECONDS = re.compile(r"[0-9]+")
NONE_AT_ALL = -1
"""No score is so young."""
MOST_SECONDS = 2**31
"""What larger numbers count as (RFC 9111, section 1.2.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """``max_age``: the age in seconds above which a score is scored anew if it can be; None: any age will do.

    ``only_if_cached``: nothing is scored.
    """

    max_age: int | None = None
    only_if_cached: bool = False

    @classmethod
    def parse(cls, header: str | None) -> Self:
        """``no-cache`` wants a new score; ``max-stale`` adds to ``max-age``. What is not understood is passed over."""
        found = _directives(header or "")
        only_if_cached = "only-if-cached" in found
        if "no-cache" in found:
            return cls(max_age=NONE_AT_ALL, only_if_cached=only_if_cached)
        max_age = _seconds(found.get("max-age"))
        if max_age is not None and "max-stale" in found:
            more = found["max-stale"]
            max_age = None if more is None else max_age + (_seconds(more) or 0)
        return cls(max_age=max_age, only_if_cached=only_if_cached)

    def takes(self, age: float) -> bool:
        """Whether a score of that age will do."""
        return self.max_age is None or age <= self.max_age


ANY = Wish()


def _directives(header: str) -> dict[str, str | None]:
    """Names in lower case, and their arguments; of a directive that comes twice, the first."""
    found: dict[str, str | None] = {}
    for name, quoted, token in _DIRECTIVE.findall(header):
        found.setdefault(name.lower(), quoted or token or None)
    return found


def _seconds(text: str | None) -> int | None:
    if text is None or not _SECONDS.fullmatch(text):
        return None
    return min(int(text.lstrip("0")[:12] or "0"), MOST_SECONDS)
