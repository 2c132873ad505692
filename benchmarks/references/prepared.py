"""A writer of prepared bytes, as ``redis-cli --pipe``: everything was built before the clock starts.

``python -m benchmarks.references.prepared RUN REDIS_HOST REDIS_PORT`` sends the scores of a run, in hashes of about 48
fields as the product keeps them, and counts the replies.
"""

import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from zlib import crc32

import pyarrow.parquet as pq

from benchmarks.children import answer
from benchmarks.errors import Broken

_FIELDS = 48
_CHUNK_BYTES = 256 * 1024
_SCORE = struct.Struct("<BBIf")


def main() -> None:
    run, host, port = sys.argv[1:]
    entities, commands, data = prepared(sorted(Path(run, "parts").glob("*.parquet")))
    with socket.create_connection((host, int(port))) as connection:
        started = time.perf_counter()
        sender = Thread(target=_send, args=(connection, data))
        sender.start()
        _require_replies(connection, commands)
        sender.join()
        seconds = time.perf_counter() - started
    answer(entities=entities, seconds=seconds)


def prepared(parts: Sequence[Path]) -> tuple[int, int, bytes]:
    """How many entities, in how many commands, and the bytes of these."""
    rows = [row for part in parts for row in _rows(part)]
    buckets: list[list[bytes]] = [[] for _ in range(max(1, len(rows) // _FIELDS))]
    for entity, score in rows:
        text = entity.encode()
        buckets[crc32(text) % len(buckets)] += (text, _SCORE.pack(1, 0, 0, score))
    filled = [(place, words) for place, words in enumerate(buckets) if words]
    return len(rows), len(filled), b"".join(_command(b"HSET", b"bench:%d" % place, *words) for place, words in filled)


def _rows(part: Path) -> Iterator[tuple[str, float]]:
    table = pq.read_table(part, columns=["entity_id", "churn"])
    return zip(table["entity_id"].to_pylist(), table["churn"].to_pylist(), strict=True)


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _send(connection: socket.socket, data: bytes) -> None:
    view = memoryview(data)
    for start in range(0, len(view), _CHUNK_BYTES):
        connection.sendall(view[start : start + _CHUNK_BYTES])


def _require_replies(connection: socket.socket, commands: int) -> None:
    """Every reply is ``:N``, the number of fields that are new."""
    found = 0
    while found < commands:
        replies = connection.recv(_CHUNK_BYTES)
        if not replies or b"-" in replies:
            raise Broken("the store refused a prepared write")
        found += replies.count(b"\n")


if __name__ == "__main__":
    main()
