"""The border: every failure of the Redis client becomes one of our errors, and its text stays behind."""

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as redis

from shared.errors import StoreDown, StoreError, StoreRefused

_DOWN: tuple[tuple[type[Exception], str], ...] = (
    (redis.BusyLoadingError, "is still loading its data"),
    (redis.MaxConnectionsError, "cannot be asked: every connection of this process is in use"),
    (redis.ClusterDownError, "is a cluster that does not cover all of its slots"),
    (redis.TimeoutError, "did not answer in time"),
    (TimeoutError, "did not answer in time"),
    (redis.ConnectionError, "cannot be reached"),
    (OSError, "cannot be reached"),
    (redis.ClusterError, "is a cluster that sends us from node to node"),
    (redis.RedisClusterException, "is a cluster that cannot be reached"),
    (redis.InvalidResponse, "does not speak the protocol"),
)
_NO_PERMISSION = "NOPERM: the user may not do this; docs/security.md has the rules that it needs"
_REFUSED_IN_SCRIPT = "ACL failure in script"
"""How the servers tell of a command that the user may not send, where a script of ours sends it; the client has cut off
the word before it."""

_REFUSED: tuple[tuple[type[Exception], str], ...] = (
    (redis.AuthenticationError, "NOAUTH: it wants another user or password"),
    (redis.AuthenticationWrongNumberOfArgsError, "NOAUTH: it wants another user or password"),
    (redis.AuthorizationError, _NO_PERMISSION),
    (redis.NoPermissionError, _NO_PERMISSION),
    (redis.OutOfMemoryError, "OOM: it is full; raise its maxmemory or retire snapshots"),
    (redis.ReadOnlyError, "READONLY: it is a replica; give the address of the primary"),
)
_NEXT_STEP = "Check FORESCORE_REDIS__URL and that the server runs"


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Around every use of the client; ``where`` names the server, without credentials."""
    try:
        yield
    except (redis.RedisError, redis.RedisClusterException, OSError) as error:
        raise translate(error, where) from None


def translate(error: Exception, where: str) -> StoreError:
    """The error of ours that says the same. A server's own text may hold a key or a value, so only its kind is kept."""
    for kind, text in _REFUSED:
        if isinstance(error, kind):
            return StoreRefused(f"the store at {where} refused: {text}")
    if str(error).startswith(_REFUSED_IN_SCRIPT):
        return StoreRefused(f"the store at {where} refused: {_NO_PERMISSION}")
    for kind, text in _DOWN:
        if isinstance(error, kind):
            return StoreDown(f"the store at {where} {text}. {_NEXT_STEP}")
    return StoreRefused(f"the store at {where} refused: {_kind(error)}")


def _kind(error: Exception) -> str:
    first = str(error).split(" ", 1)[0]
    return first if first.isalpha() and first.isupper() else type(error).__name__


def is_wrong_type(error: object) -> bool:
    """Whether a reply says that the key holds something else than a hash of ours."""
    return isinstance(error, redis.ResponseError) and str(error).startswith("WRONGTYPE")
