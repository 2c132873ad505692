"""Proxies before a server: one that holds replies back and knows what was sent, and one whose wire goes bad."""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

HOST = "127.0.0.1"


class Proxy:
    """While ``gate`` is clear, replies are read from the server and kept until it is set."""

    def __init__(self, target: int) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.connections = 0
        self.sent = b""
        self.port = 0
        self._target = target
        self._arrived = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def until_sent(self, text: bytes, times: int) -> None:
        """Returns when the text was sent so many times."""
        async with self._arrived, asyncio.timeout(10):
            await self._arrived.wait_for(lambda: self.sent.count(text) >= times)

    @property
    def open(self) -> int:
        """How many connections lead through it just now."""
        return len(self._tasks) // 2

    async def drop(self) -> None:
        """Ends every connection, as a failover does."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        for pump in (self._requests(reader, to_server), self._replies(from_server, writer)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                async with self._arrived:
                    self.sent += data
                    self._arrived.notify_all()
                to_server.write(data)
        except ConnectionError:
            pass
        finally:
            to_server.close()

    async def _replies(self, from_server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await from_server.read(1 << 16):
                await self.gate.wait()
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """A proxy to that port of this machine."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.drop()
        await server.wait_closed()


class BadWire:
    """A proxy on threads, for processes on both sides, whose wire goes bad when it is told to.

    ``delay``: seconds that each reply waits. ``torn``: each connection ends after so many more bytes of replies.
    ``dead``: takes connections and bytes and passes nothing on; who was connected then hears nothing ever again.
    """

    def __init__(self, target: int, listener: socket.socket) -> None:
        self.delay = 0.0
        self.torn: int | None = None
        self.dead = False
        self.accepted = 0
        self.port = int(listener.getsockname()[1])
        self._target = target
        self._listener = listener
        self._pairs: set[_Pair] = set()

    @property
    def open(self) -> int:
        """How many connections lead through it just now."""
        return len(self._pairs)

    def mend(self) -> None:
        """From now on it is sound, for new connections at least."""
        self.delay, self.torn, self.dead = 0.0, None, False

    def cut(self) -> None:
        """Resets every connection, as a failover does."""
        for pair in list(self._pairs):
            pair.reset()

    def serve(self) -> None:
        """Takes connections until the listener is closed."""
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.accepted += 1
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection((HOST, self._target)) as far:
            pair = _Pair(near, far)
            self._pairs.add(pair)
            try:
                threading.Thread(target=self._requests, args=(pair,), daemon=True).start()
                self._replies(pair)
            finally:
                self._pairs.discard(pair)
                pair.reset()

    def _requests(self, pair: "_Pair") -> None:
        with suppress(OSError):
            while data := pair.near.recv(1 << 16):
                if self.dead:
                    pair.dead = True
                if not pair.dead:
                    pair.far.sendall(data)
            pair.far.shutdown(socket.SHUT_RDWR)

    def _replies(self, pair: "_Pair") -> None:
        pause = threading.Event()
        while data := pair.far.recv(1 << 16):
            if self.delay:
                pause.wait(self.delay)
            if self.torn is not None and pair.passed + len(data) > self.torn:
                pair.near.sendall(data[: max(0, self.torn - pair.passed)])
                return
            if not pair.dead:
                pair.near.sendall(data)
                pair.passed += len(data)


class _Pair:
    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.passed = 0
        self.dead = False

    def reset(self) -> None:
        with suppress(OSError):
            self.near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for one in (self.near, self.far):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def bad_wire(target: int) -> Iterator[BadWire]:
    """A sound wire to that port of this machine, which can be made bad."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(256)
        wire = BadWire(target, listener)
        threading.Thread(target=wire.serve, daemon=True).start()
        yield wire
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        wire.cut()
