"""A TLS end before a real server: handshakes, certificates and bytes are real, and the server need not know TLS."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

HOST = "localhost"


@dataclass(frozen=True)
class Authority:
    """A certificate authority, and what it has signed, as files."""

    folder: Path
    ca: trustme.CA

    @classmethod
    def new(cls, folder: Path) -> "Authority":
        folder.mkdir()
        made = cls(folder, trustme.CA())
        made.ca.cert_pem.write_to_path(str(made.certificate))
        return made

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    def signed(self, name: str) -> trustme.LeafCert:
        """A certificate for a host, or for a client; its files are ``NAME.pem`` and ``NAME.key``."""
        leaf = self.ca.issue_cert(name)
        leaf.private_key_pem.write_to_path(str(self.folder / f"{name}.key"))
        leaf.cert_chain_pems[0].write_to_path(str(self.folder / f"{name}.pem"))
        return leaf


@contextmanager
def tls_end(target: int, leaf: trustme.LeafCert, *, clients: Authority | None = None) -> Iterator[int]:
    """A port that speaks TLS and passes on to ``target``. ``clients``: who must have signed a caller's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    if clients is not None:
        clients.ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    loop, ready, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    ports: list[int] = []

    async def served() -> None:
        server = await asyncio.start_server(lambda *ends: _joined(target, *ends), "127.0.0.1", 0, ssl=context)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await over.wait()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(served()))
    thread.start()
    try:
        assert ready.wait(10)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


async def _joined(target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    there, onward = await asyncio.open_connection("127.0.0.1", target)
    try:
        await asyncio.gather(_pumped(reader, onward), _pumped(there, writer))
    finally:
        writer.transport.abort()
        onward.transport.abort()


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
