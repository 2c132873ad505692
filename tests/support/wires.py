"""Servers between a client and its store that make the wire bad: slow, or always the same answer."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HOST = "127.0.0.1"


@contextmanager
def slow_proxy(port: int, delay: Callable[[], float]) -> Iterator[int]:
    """Passes everything on to ``port``; what comes back from there waits ``delay()`` seconds, and stays in order."""

    def serve(near: socket.socket) -> None:
        far = socket.create_connection((HOST, port))
        threading.Thread(target=_pump, args=(near, far, lambda: 0.0), daemon=True).start()
        _pump(far, near, delay)

    with _listening(serve) as own:
        yield own


@contextmanager
def parrot(reply: bytes) -> Iterator[int]:
    """Answers whatever it hears with the same reply."""

    def serve(near: socket.socket) -> None:
        with near:
            while near.recv(65_536):
                near.sendall(reply)

    with _listening(serve) as own:
        yield own


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    def handle(near: socket.socket) -> None:
        with suppress(OSError):
            serve(near)

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                threading.Thread(target=handle, args=(near,), daemon=True).start()

    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(64)
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield int(listener.getsockname()[1])
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, sink: socket.socket, delay: Callable[[], float]) -> None:
    pause = threading.Event()
    with suppress(OSError), source, sink:
        while data := source.recv(65_536):
            pause.wait(delay())
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)
