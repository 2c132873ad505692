"""A proxy before a server that can hold its replies back, and that knows what was sent through it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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
