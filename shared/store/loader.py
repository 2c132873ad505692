"""Sends what fills a snapshot to the store as fast as it takes it, and checks every reply."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import hiredis
from redis import Redis
from redis._parsers import BaseParser
from redis.cluster import RedisCluster
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import InvalidResponse, RedisError

from shared.errors import StoreError, StoreRefused
from shared.layout import MARKER_FIELD, MARKER_VALUE
from shared.store.failures import translate, translated
from shared.store.interfaces import PublishBatch
from shared.store.link import Link
from shared.store.resp import Slab, lengths, markers, runs, slabs

SLAB_BYTES = 384 * 1024
OUTSTANDING_SLABS = 8
"""Slabs on their way at once, so that the server never waits for the next; their replies fit into its buffer."""

SMALL_COMMANDS = 4_000
"""How many commands without entities go out at once."""
CLUSTER_COMMANDS = 100

_READ_BYTES = 64 * 1024
_NOTHING = object()


class Loader(Protocol):
    """Buckets are those whose keys are the prefix and their number, from 0 on."""

    def load(self, key_prefix: str, batches: Iterable[PublishBatch]) -> None:
        """Writes the batches into their buckets."""
        ...

    def mark(self, key_prefix: str, buckets: Sequence[int]) -> None:
        """Makes the buckets exist."""
        ...

    def count(self, key_prefix: str, buckets: int) -> int:
        """How many entities the buckets hold."""
        ...


def loader_for(link: Link) -> Loader:
    """A cluster wants each command on its own node, so there the client's pipeline sorts them."""
    client = link.client
    return PipelineLoader(link) if isinstance(client, RedisCluster) else WireLoader(client, link.where)


class WireLoader:
    """Writes protocol bytes to a connection out of the client's pool."""

    def __init__(self, client: Redis, where: str) -> None:
        self._client = client
        self._where = where

    def load(self, key_prefix: str, batches: Iterable[PublishBatch]) -> None:
        self._exchange(slab for batch in batches for slab in slabs(batch, key_prefix, SLAB_BYTES))

    def mark(self, key_prefix: str, buckets: Sequence[int]) -> None:
        self._exchange(markers(key_prefix, some) for some in _slices(buckets, SMALL_COMMANDS))

    def count(self, key_prefix: str, buckets: int) -> int:
        return self._exchange(lengths(key_prefix, some) for some in _slices(range(buckets), SMALL_COMMANDS))

    def _exchange(self, slabs: Iterable[Slab]) -> int:
        """Sends all commands; the entities that their replies count, if they ask for lengths.

        What making the commands raises is none of the store's, and is raised as it is.
        """
        with ExitStack() as stack:
            with translated(self._where):
                connection = stack.enter_context(self._connection())
            replies = _Replies(connection, self._where)
            for sent, commands in slabs:
                with translated(self._where):
                    connection.send_packed_command([sent])
                    replies.expect(commands)
            with translated(self._where):
                replies.drain()
        return replies.entities

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        pool = self._client.connection_pool
        connection = pool.get_connection()
        try:
            yield connection
        except BaseException:
            connection.disconnect()  # type: ignore[no-untyped-call] # replies may be on their way that the next user must not get
            raise
        finally:
            pool.release(connection)


class _Replies:
    """Counts the replies that are due. A refusal is kept until all were read, so that the connection stays clean.

    They are read as the bytes come in: the client's own way to a reply costs more than most of these commands do.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self.entities = 0
        """The sum of all numbers, of each without the marker; a lost bucket has not even that."""
        self._connection = connection
        self._where = where
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=BaseParser.parse_error, notEnoughData=_NOTHING
        )
        self._due: list[int] = []
        self._refusal: StoreError | None = None

    def expect(self, commands: int) -> None:
        self._due.append(commands)
        if len(self._due) >= OUTSTANDING_SLABS or self._refusal:
            self._read(self._due.pop(0))
        if self._refusal:
            self.drain()

    def drain(self) -> None:
        while self._due:
            self._read(self._due.pop(0))
        if self._refusal:
            raise self._refusal

    def _read(self, commands: int) -> None:
        for _ in range(commands):
            reply = self._reply()
            if isinstance(reply, RedisError):
                self._refusal = self._refusal or translate(reply, self._where)
            elif isinstance(reply, int):
                self.entities += max(0, reply - 1)
            else:
                raise StoreRefused(f"the store at {self._where} answered with something else than a number")

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is _NOTHING:
            received = self._connection._sock.recv(_READ_BYTES)  # noqa: SLF001 - the client set it up, and its timeout
            if not received:
                raise Disconnected("the server closed the connection")
            self._reader.feed(received)
        return reply


class PipelineLoader:
    """Writes through the client's own pipeline; on a cluster, that sends each command to the node of its key."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def load(self, key_prefix: str, batches: Iterable[PublishBatch]) -> None:
        for batch in batches:
            self._load(key_prefix, batch)

    def _load(self, key_prefix: str, batch: PublishBatch) -> None:
        ids, values = batch.ids.to_pylist(), batch.values.to_pylist()
        commands: list[tuple[Any, ...]] = []
        for bucket, first, stop in runs(batch.buckets):
            pairs = [text for row in range(first, stop) for text in (ids[row], values[row])]
            commands.append(("HSET", f"{key_prefix}{bucket}", MARKER_FIELD, MARKER_VALUE, *pairs))
            if len(commands) == CLUSTER_COMMANDS:
                self._link.pipeline(commands)
                commands = []
        self._link.pipeline(commands)

    def mark(self, key_prefix: str, buckets: Sequence[int]) -> None:
        for some in _slices(buckets, SMALL_COMMANDS):
            self._link.pipeline([("HSET", f"{key_prefix}{bucket}", MARKER_FIELD, MARKER_VALUE) for bucket in some])

    def count(self, key_prefix: str, buckets: int) -> int:
        return sum(
            max(0, int(fields) - 1)  # without the marker; a lost bucket has not even that
            for some in _slices(range(buckets), SMALL_COMMANDS)
            for fields in self._link.pipeline([("HLEN", f"{key_prefix}{bucket}") for bucket in some])
        )


def _slices(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (numbers[first : first + size] for first in range(0, len(numbers), size))
