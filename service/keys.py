"""API keys: random, and kept only as their SHA-256. A line of the file is ``name scopes sha256 [expires]``."""

import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256

from shared.errors import SettingsError

PREFIX = "fsk_"
"""Lets scanners of secrets find a key that was committed somewhere."""
_RANDOM_BYTES = 32
MOST_KEYS = 1000
"""Each request is compared with all of them."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Access(StrEnum):
    """What a key allows; none includes another."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One line. Several may have one name: the old and the new key of one app. ``expires``: epoch seconds."""

    name: str
    scopes: frozenset[Access]
    digest: bytes
    expires: float | None = None

    def line(self) -> str:
        """As it stands in the file."""
        scopes = ",".join(scope for scope in Access if scope in self.scopes)
        parts = [self.name, scopes, self.digest.hex()]
        if self.expires is not None:
            parts.append(f"{datetime.fromtimestamp(self.expires, UTC):%Y-%m-%dT%H:%M:%SZ}")
        return " ".join(parts)

    def is_valid(self, now: float) -> bool:
        return self.expires is None or now < self.expires


def new_key() -> str:
    """256 random bits, as text that a header carries."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(key: bytes) -> bytes:
    """What is kept of a key. It is random and long, so that no slow hash is needed to protect it."""
    return sha256(key).digest()


def find(keys: Sequence[Key], presented: bytes) -> Key | None:
    """The key that was presented. It takes the same time whichever it is, and if it is none."""
    digest = digest_of(presented)
    found = None
    for key in keys:
        if hmac.compare_digest(key.digest, digest):
            found = key
    return found


def parse_lines(lines: Iterable[str], where: str) -> list[Key]:
    """The keys; empty lines and those that begin with # are none. SettingsError names the line, not what is in it."""
    keys: list[Key] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            keys.append(_parse(text, f"{where}, line {number}"))
    if not keys:
        raise SettingsError(f"{where}: there is no key in it, so nobody could ask; `forescore key new` makes one")
    if len(keys) > MOST_KEYS:
        raise SettingsError(f"{where}: more than {MOST_KEYS} keys; let several callers of one kind share one")
    if len({key.digest for key in keys}) < len(keys):
        raise SettingsError(f"{where}: one key is there twice; remove one of its lines")
    return keys


def name_of(text: str) -> str:
    """SettingsError where it cannot be a name."""
    if not _NAME.fullmatch(text):
        raise SettingsError("the name of a key has 1 to 64 letters, digits, dots, dashes and underscores")
    return text


def scopes_of(text: str) -> frozenset[Access]:
    """``read,write``; SettingsError where one is not known."""
    try:
        return frozenset(Access(word) for word in text.split(","))
    except ValueError:
        raise SettingsError(f"the scopes of a key are {', '.join(Access)}, joined by commas") from None


def moment_of(text: str) -> float:
    """``2027-01-31`` (its end is not included) or ``2027-01-31T12:00:00Z``, as epoch seconds."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError("the end of a key is a date, 2027-01-31, or a moment, 2027-01-31T12:00:00Z") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _parse(text: str, where: str) -> Key:
    parts = text.split()
    if len(parts) not in {3, 4} or not _DIGEST.fullmatch(parts[2]):
        raise SettingsError(
            f"{where}: it must be: name scopes sha256 [expires]; `forescore key new` writes such a line"
        )
    try:
        expires = moment_of(parts[3]) if len(parts) == 4 else None  # noqa: PLR2004 - the parts of a line
        return Key(name=name_of(parts[0]), scopes=scopes_of(parts[1]), digest=bytes.fromhex(parts[2]), expires=expires)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from None
