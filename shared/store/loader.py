"""Sends a batch to the store as fast as it takes it, and checks every reply."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from redis import Redis
from redis.cluster import RedisCluster
from redis.exceptions import ResponseError

from shared.errors import StoreError, StoreRefused
from shared.layout import MARKER_FIELD, MARKER_VALUE
from shared.store.failures import translate, translated
from shared.store.interfaces import PublishBatch
from shared.store.link import Link
from shared.store.resp import runs, slabs

SLAB_BYTES = 384 * 1024
OUTSTANDING_SLABS = 2
"""Slabs on their way at once: the server works on one while the next is sent, and its replies fit into its buffer."""

CLUSTER_COMMANDS = 100


class Loader(Protocol):
    def load(self, key_prefix: str, batch: PublishBatch) -> None:
        """Writes the batch into the buckets whose keys are the prefix and their number."""
        ...


def loader_for(link: Link) -> Loader:
    """A cluster wants each command on its own node, so there the client's pipeline sorts them."""
    client = link.client
    return ClusterLoader(link) if isinstance(client, RedisCluster) else WireLoader(client, link.where)


class WireLoader:
    """Writes protocol bytes to a connection out of the client's pool."""

    def __init__(self, client: Redis, where: str) -> None:
        self._client = client
        self._where = where

    def load(self, key_prefix: str, batch: PublishBatch) -> None:
        with translated(self._where), self._connection() as connection:
            replies = _Replies(connection, self._where)
            for sent, commands in slabs(batch, key_prefix, SLAB_BYTES):
                connection.send_packed_command([sent])
                replies.expect(commands)
            replies.drain()

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
    """Counts the replies that are due. A refusal is kept until all were read, so that the connection stays clean."""

    def __init__(self, connection: Any, where: str) -> None:
        self._connection = connection
        self._where = where
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
            try:
                reply = self._connection.read_response(disable_decoding=True)
            except ResponseError as error:
                self._refusal = self._refusal or translate(error, self._where)
            else:
                if not isinstance(reply, int):
                    raise StoreRefused(f"the store at {self._where} answered a write with something else than a number")


class ClusterLoader:
    """Writes through the client's own pipeline, which sends each command to the node of its key."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def load(self, key_prefix: str, batch: PublishBatch) -> None:
        ids, values = batch.ids.to_pylist(), batch.values.to_pylist()
        commands: list[tuple[Any, ...]] = []
        for bucket, first, stop in runs(batch.buckets):
            pairs = [text for row in range(first, stop) for text in (ids[row], values[row])]
            commands.append(("HSET", f"{key_prefix}{bucket}", MARKER_FIELD, MARKER_VALUE, *pairs))
            if len(commands) == CLUSTER_COMMANDS:
                self._link.pipeline(commands)
                commands = []
        self._link.pipeline(commands)
