"""The right to publish, which lapses by itself, and the fencing epoch that it brings."""

from collections.abc import Callable
from secrets import token_hex

from shared.layout import Keys
from shared.snapshot import Lease
from shared.store import refusals, scripts
from shared.store.link import Link


class RedisLeases:
    """``interfaces.Leases`` on Redis or Valkey."""

    def __init__(self, link: Link, keys: Keys, new_token: Callable[[], str] = token_hex) -> None:
        self._link = link
        self._keys = keys
        self._new_token = new_token

    def acquire(self, holder: str, seconds: float, *, instead_of: str | None = None) -> Lease:
        wanted = Lease(token=self._new_token(), holder=holder, epoch=0, seconds=seconds)
        keys = (self._keys.lease(), self._keys.epoch())
        values = (lease_value(wanted), _milliseconds(seconds), instead_of or "")
        reply = self._link.command(*scripts.ACQUIRE.call(*keys, *values))
        if isinstance(reply, bytes):
            raise refusals.lease_held(_holder_in(reply))
        return Lease(token=wanted.token, holder=holder, epoch=int(reply), seconds=seconds)

    def holder(self) -> str | None:
        value = self._link.command("GET", self._keys.lease())
        return None if value is None else _holder_in(value)

    def renew(self, lease: Lease) -> None:
        key, seconds = self._keys.lease(), _milliseconds(lease.seconds)
        if not self._link.command(*scripts.RENEW.call(key, lease_value(lease), seconds)):
            raise refusals.fenced(lease)

    def release(self, lease: Lease) -> None:
        self._link.command(*scripts.RELEASE.call(self._keys.lease(), lease_value(lease)))


def lease_value(lease: Lease) -> str:
    """What the store keeps under the lease: the token proves it, the holder is for people."""
    return f"{lease.token} {lease.holder}"


def _holder_in(value: bytes) -> str:
    return value.decode(errors="replace").partition(" ")[2]


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
