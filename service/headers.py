"""HTTP's own words for where an answer comes from and how old it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import orjson

NO_STORE = {"cache-control": "no-store"}
REVALIDATE = "private, no-cache"
"""A copy may be kept and must be asked about: a promotion or a rollback may change the answer at any moment."""

_TAG = re.compile(r'(?:W/)?("[^"]*")')


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatus:
    """How the cache handled a question, as ``Cache-Status`` tells it (RFC 9211). ``forwarded``: why it was scored
    online; None for a hit."""

    forwarded: Literal["miss", "request", "stale", "bypass"] | None = None
    stored: bool = False
    collapsed: bool = False
    detail: str | None = None

    def __str__(self) -> str:
        words = ["forescore", "hit" if self.forwarded is None else f"fwd={self.forwarded}"]
        words += ["stored"] * self.stored + ["collapsed"] * self.collapsed
        words += [] if self.detail is None else [f"detail={self.detail}"]
        return "; ".join(words)


def headers_of(cache: CacheStatus, tag: str, age: int | None) -> dict[str, str]:
    """The headers of an answer; ``age`` is None for a score that was computed for it."""
    told = {"cache-control": REVALIDATE, "cache-status": str(cache), "etag": tag}
    return told if age is None else told | {"age": str(age)}


def entity_tag(body: Mapping[str, object]) -> str:
    """A strong ``ETag`` of an answer: of all that it says but its age, which is ``Age``'s to tell."""
    told = {name: value for name, value in body.items() if name != "age_seconds"}
    return f'"{sha256(orjson.dumps(told)).hexdigest()[:32]}"'


def is_known(tag: str, if_none_match: str | None) -> bool:
    """Whether the caller has the answer of that tag already (RFC 9110, section 13.1.2: compared weakly)."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or tag in _TAG.findall(if_none_match)
