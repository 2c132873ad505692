"""Commands of all callers share the writes of one connection, and each gets its own replies.

What is asked in one turn of the event loop goes out in one write, and so in one round trip. While two writes are on
their way, what is asked waits for the first of them and goes out together: the busier, the fewer writes. The server
answers in the order in which it was asked, so replies are matched first in, first out: each belongs to its entry, also
where nobody waits for it any more. Nothing is ever taken out of the line but by its replies. A connection that owes a
reply for too long, or that sends what was not asked for, is given up with all that waits on it.

To connect, with TLS, password, database and sentinel, is the client's business: a connection that it has set up is
taken over, and read by ``hiredis`` as the bytes come in.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, cast

import hiredis
from redis import asyncio as aio
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import InvalidResponse, ReadOnlyError
from redis.exceptions import TimeoutError as TimedOut

from shared.store.sender import Asking, Command

WRITES_UNDER_WAY = 2
"""A lone question never waits; under load, each write takes along what has come since the one before the last."""
GRACE_SECONDS = 0.001
"""A loop that was busy looks once at what has come in meanwhile, before it says that nothing came in time."""
_NOTHING = object()


class Connection(Protocol):
    """A connection of the client's: what of it is used here."""

    _writer: asyncio.StreamWriter | None
    _reader: asyncio.StreamReader | None

    async def connect(self) -> None: ...

    async def can_read(self) -> bool: ...

    async def disconnect(self, nowait: bool = False) -> None: ...  # noqa: FBT001, FBT002 - the client's own


class Pipe(asyncio.Protocol):
    """One connection. ``seconds``: within which what was written must have been answered."""

    def __init__(self, writer: asyncio.StreamWriter, seconds: float) -> None:
        self.lost: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._writer = writer  # kept for as long as its transport is used: it closes that when it goes
        self._transport = writer.transport
        self._seconds = seconds
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=BaseParser.parse_error, notEnoughData=_NOTHING
        )
        self._unsent: list[bytes] = []
        self._waiting: deque[tuple[Asking, int]] = deque()
        self._part: list[Any] = []
        self._asked = 0
        self._written: deque[tuple[float, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._in_grace = False

    def ask(self, packed: bytes, replies: int) -> "asyncio.Future[Any]":
        """Sends with what else is asked in this turn. The result is the one reply, or the list of ``replies``.

        Errors among them are values; what befalls the connection is raised. It may be cancelled at any time.
        """
        future = self._loop.create_future()
        if self.lost is not None:
            future.set_exception(self.lost)
        else:
            self.ask_for(future, packed, replies)
        return future

    def ask_for(self, asking: Asking, packed: bytes, replies: int) -> None:
        """The same on a connection that is not lost, for somebody who waits in another way."""
        if not self._unsent and len(self._written) < WRITES_UNDER_WAY:
            self._loop.call_soon(self._write)
        self._unsent.append(packed)
        self._waiting.append((asking, replies))
        self._asked += 1

    def close(self) -> None:
        """Ends it; whoever waits is told."""
        self._fail(Disconnected("closed"))

    def data_received(self, data: bytes) -> None:
        """Hands each reply to the entry that has waited for the longest."""
        reader, waiting = self._reader, self._waiting
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                if not waiting:
                    raise InvalidResponse("more replies than commands")  # noqa: TRY301 - one place says what follows
                future, replies = waiting[0]
                if replies > 1:
                    self._part.append(reply)
                    if len(self._part) < replies:
                        continue
                    reply, self._part = self._part, []
                waiting.popleft()
                if not future.done():  # else its caller has gone; the reply was his all the same
                    future.set_result(reply)
        except InvalidResponse as error:
            self._fail(error)
        self._forget_answered()
        if self._unsent and len(self._written) < WRITES_UNDER_WAY:
            self._write()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's own
        """Whoever waits is told."""
        self._fail(Disconnected("the server closed the connection"))

    def _write(self) -> None:
        if self.lost is not None or not self._unsent:
            return
        packed, self._unsent = self._unsent, []
        self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))
        self._written.append((self._loop.time() + self._seconds, self._asked))
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def _look(self) -> None:
        """Whether the oldest write that is not answered is overdue. One timer serves them all."""
        self._timer = None
        self._forget_answered()
        if not self._written:
            return
        due, now = self._written[0][0], self._loop.time()
        if now < due:
            self._timer = self._loop.call_at(due, self._look)
        elif not self._in_grace:
            self._in_grace = True
            self._timer = self._loop.call_later(GRACE_SECONDS, self._look)
        else:
            self._fail(TimedOut("no reply in time"))

    def _forget_answered(self) -> None:
        answered = self._asked - len(self._waiting)
        while self._written and self._written[0][1] <= answered:
            self._written.popleft()
            self._in_grace = False

    def _fail(self, error: Exception) -> None:
        if self.lost is not None:
            return
        self.lost = error
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()
        for future, _ in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()


class PipelinedSender:
    """``sender.Sender`` over one connection, which is opened when it is needed and opened anew when it was lost.

    ``seconds``: of one try, the time to connect included.
    """

    def __init__(self, pool: aio.ConnectionPool, seconds: float) -> None:
        self._pool = pool
        self._seconds = seconds
        self._pipe: Pipe | None = None
        self._opening: asyncio.Task[Pipe] | None = None

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """The replies in order, errors among them; the client's exceptions where there are none."""
        if not commands:
            return []
        packed = b"".join(map(hiredis.pack_command, commands))
        replies = await self._ask(packed, len(commands))
        return [replies] if len(commands) == 1 else cast("list[Any]", replies)

    async def send_pair(self, key: bytes, field: bytes, other: bytes) -> Any:
        """The reply to HMGET of two fields, the question that is asked most: packed here, in half of the time."""
        packed = _packed_pair(key, field, other)
        pipe = self._pipe
        if pipe is None or pipe.lost is not None:
            return await self._ask(packed, 1)
        return await pipe.ask(packed, 1)

    def send_pair_for(self, key: bytes, field: bytes, other: bytes, asking: Asking) -> bool:
        """False where there is no connection yet, or no more."""
        pipe = self._pipe
        if pipe is None or pipe.lost is not None:
            return False
        pipe.ask_for(asking, _packed_pair(key, field, other), 1)
        return True

    async def close(self) -> None:
        """Closes the connection, and gives up one that is being opened."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._pipe is not None:
            self._pipe.close()

    async def _ask(self, packed: bytes, replies: int) -> Any:
        pipe = self._pipe
        if pipe is not None and pipe.lost is None:
            reply = await pipe.ask(packed, replies)
        else:
            async with asyncio.timeout(self._seconds):
                pipe = await self._opened()
                reply = await pipe.ask(packed, replies)
        self._leave_a_replica(pipe, reply if replies > 1 else (reply,))
        return reply

    async def _opened(self) -> Pipe:
        """All that come while it is being opened wait for the one; the work belongs to none of them."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._settle)
        return await asyncio.shield(self._opening)

    def _settle(self, opening: "asyncio.Task[Pipe]") -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._pipe = opening.result()

    async def _open(self) -> Pipe:
        connection = cast("Connection", self._pool.make_connection())  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(self._seconds):
                await connection.connect()
                return await _taken_over(connection, self._seconds)
        except BaseException:
            await connection.disconnect(nowait=True)  # replies may be on their way: nobody may use it any more
            raise

    def _leave_a_replica(self, pipe: Pipe, replies: Sequence[Any]) -> None:
        """After a failover the server may be the former primary; the sentinels know the present one."""
        if isinstance(self._pool, aio.sentinel.SentinelConnectionPool) and any(
            isinstance(reply, ReadOnlyError) for reply in replies
        ):
            pipe.close()


def _packed_pair(key: bytes, field: bytes, other: bytes) -> bytes:
    parts = (len(key), key, len(field), field, len(other), other)
    return b"*4\r\n$5\r\nHMGET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % parts


async def _taken_over(connection: Connection, seconds: float) -> Pipe:
    """The client gives no other access to what it has connected than these two attributes."""
    if await connection.can_read():
        raise InvalidResponse("more replies than commands")
    writer, reader = connection._writer, connection._reader  # noqa: SLF001
    if writer is None or reader is None or reader.at_eof():
        raise Disconnected("the server closed the connection")
    pipe = Pipe(writer, seconds)
    writer.transport.set_protocol(pipe)
    connection._writer = connection._reader = None  # noqa: SLF001 - it is not the client's any more
    return pipe
