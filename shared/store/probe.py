"""What can be learnt of a server and of a model's keys without changing anything, for ``forescore doctor``.

A question that the server refuses (a managed one hides CONFIG, an ACL hides most) is answered with None: that it was
not answered is a finding, not a fault.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisClusterException, RedisError, ResponseError

from shared.clock import Clock
from shared.layout import Keys, models_key
from shared.settings import Settings
from shared.snapshot import SnapshotMeta
from shared.store.catalogue import RedisCatalogue
from shared.store.clients import sync_client
from shared.store.connect import address_of
from shared.store.failures import translate
from shared.store.leases import RedisLeases
from shared.store.link import Link

SAMPLED_BUCKETS = 32
PINGS = 5
_CONFIG = (
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "stop-writes-on-bgsave-error",
    "tcp-keepalive",
    "timeout",
)

Info = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Buckets of a snapshot, looked at: their memory, keys included, and how the server keeps them."""

    buckets: int
    entities: int
    bytes: int
    longest_value: int
    encodings: frozenset[str]

    @property
    def bytes_per_entity(self) -> float:
        """Memory of one entity, its share of the bucket included."""
        return self.bytes / max(1, self.entities)


class Probe:
    """One connection that waits for no reply longer than a few seconds."""

    def __init__(self, link: Link, keys: Keys | None, namespace: str) -> None:
        self._link = link
        self._namespace = namespace
        self.where = link.where
        self._keys = keys

    @property
    def names(self) -> Keys:
        """The names of the model's keys."""
        if self._keys is None:
            raise ValueError("no model was named: see of_model")
        return self._keys

    @property
    def catalogue(self) -> RedisCatalogue:
        """What is there of the model."""
        return RedisCatalogue(self._link, self.names)

    @property
    def holder(self) -> str | None:
        """Who holds the lease."""
        return RedisLeases(self._link, self.names).holder()

    def lease_seconds_left(self) -> float | None:
        """Until the lease lapses; None where there is none, infinity where it never will."""
        left = int(self._link.command("PTTL", self.names.lease()))
        return None if left == -2 else float("inf") if left < 0 else left / 1000  # noqa: PLR2004 - Redis's own: no such key

    def of_model(self, name: str) -> "Probe":
        """The same connection, looking at one model."""
        return Probe(self._link, Keys(self._namespace, name), self._namespace)

    def models(self) -> list[str]:
        """The models that have snapshots here."""
        return sorted(map(_text, self._link.command("SMEMBERS", models_key(self._namespace))))

    def ping(self) -> None:
        """Raises the StoreError that says why it does not answer."""
        self._link.command("PING")

    def round_trip_seconds(self, clock: Clock) -> float:
        """The shortest of a few: what the way costs when nothing else is in it."""
        return min(self._timed(clock) for _ in range(PINGS))

    def nodes(self) -> Mapping[str, Info] | None:
        """The reply of INFO, by node."""
        info = self._asked(self._link.client.info)
        if info is None:
            return None
        is_cluster = bool(info) and all(isinstance(node, Mapping) for node in info.values())
        return {str(name): node for name, node in info.items()} if is_cluster else {self.where: info}

    def config(self) -> Mapping[str, str] | None:
        """The settings of the server that matter here."""
        found: dict[str, str] = {}
        for name in _CONFIG:
            reply = self._asked(lambda name=name: self._link.client.config_get(name))
            if reply is None:
                return None
            found |= {str(key): str(value) for key, value in reply.items()}
        return found

    def clock_ahead_seconds(self, wall: Clock) -> float | None:
        """How far the server's clock is ahead of this host's, to within half a round trip."""
        before = wall.now()
        reply = self._asked(self._link.client.time)
        if reply is None:
            return None
        seconds, microseconds = reply
        return int(seconds) + int(microseconds) / 1e6 - (before + wall.now()) / 2

    def measure(self, meta: SnapshotMeta) -> Measured | None:
        """A few buckets, spread over the snapshot; None where the server does not tell, or has none of them."""
        places = range(0, meta.buckets, max(1, meta.buckets // SAMPLED_BUCKETS))[:SAMPLED_BUCKETS]
        found = [one for place in places if (one := self._bucket(self.names.bucket(meta.snapshot, place)))]
        if not found:
            return None
        sizes, counts, encodings, lengths = zip(*found, strict=True)
        return Measured(
            buckets=len(found),
            entities=sum(counts),
            bytes=sum(sizes),
            longest_value=max(lengths),
            encodings=frozenset(encodings),
        )

    def user(self) -> str | None:
        """The user that the server knows this connection as."""
        reply = self._asked(self._link.client.acl_whoami)
        return None if reply is None else _text(reply)

    def may(self, user: str, command: Sequence[object]) -> bool | None:
        """Whether the user may send this command, asked by ACL DRYRUN, which does nothing. None: it is not told."""
        try:
            reply = self._link.client.execute_command("ACL DRYRUN", user, *command)  # type: ignore[no-untyped-call]
        except ResponseError:
            return None
        except (RedisError, RedisClusterException, OSError) as error:
            raise translate(error, self.where) from None
        return _text(reply) == "OK"

    def _bucket(self, key: str) -> tuple[int, int, str, int] | None:
        memory = self._asked(lambda: self._link.client.memory_usage(key, samples=0))
        encoding = self._asked(lambda: self._link.client.object("ENCODING", key))
        fields = self._asked(lambda: self._link.client.hgetall(key))
        if memory is None or not fields:
            return None
        return int(memory), len(fields) - 1, _text(encoding or "unknown"), max(map(len, fields.values()))

    def _timed(self, clock: Clock) -> float:
        start = clock.now()
        self.ping()
        return clock.now() - start

    def _asked(self, question: Any) -> Any:
        """None where the server answers with a refusal; StoreError where it does not answer."""
        try:
            return question()
        except ResponseError:
            return None
        except (RedisError, RedisClusterException, OSError) as error:
            raise translate(error, self.where) from None


@contextmanager
def open_probe(settings: Settings, *, seconds: float) -> Iterator[Probe]:
    """A probe of the settings' server; StoreError where it cannot be had. ``seconds``: for each reply."""
    with address_of(settings) as address, sync_client(address, seconds=seconds) as client:
        yield Probe(Link(client, address.where), None, settings.redis.namespace)


def _text(reply: object) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
