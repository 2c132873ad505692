"""One of several workers: a process of its own, started by ``service.workers`` with an open socket in its hand.

It is a fresh interpreter and no fork: torch's and the event loop's threads do not survive a fork, and each worker
settles its number of threads before torch is loaded.
"""

import argparse
import faulthandler
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import structlog

from service import worker_metrics
from service.server import answer, prepare
from shared.settings import load_settings

BEAT = b"b"
"""What the event loop says, again and again, from when the worker is ready."""


def main(arguments: Sequence[str]) -> int:
    """Answers until it is told to end, or until the process that started it is gone; the exit code."""
    given = parse(arguments)
    settings = load_settings()
    prepare(settings)
    faulthandler.enable()  # whoever hangs is told to abort, and writes down where it is
    structlog.contextvars.bind_contextvars(worker=given.number)
    registry = worker_metrics.join(given.metrics, given.number)
    from service.app import create_app  # noqa: PLC0415 - after the threads and the kind of metrics are settled
    from service.runtime import Dependencies  # noqa: PLC0415 - the same

    dependencies = Dependencies(
        opens_first=given.opens_first,
        replaces=given.replaces,
        hung=given.hung,
        warms_up=True,
        looks_at_store=looks_at_store(given),
    )
    app = create_app(settings, dependencies=dependencies, registry=registry)
    with socket.socket(fileno=given.listener) as listener, socket.socket(fileno=given.channel) as channel:
        orphaned = Event()
        Thread(target=_end_with_parent, args=(channel, orphaned), daemon=True).start()
        code = answer(app, listener, settings.service, lambda: _beat(channel))
        if orphaned.is_set():
            shutil.rmtree(given.metrics, ignore_errors=True)
    return code


def looks_at_store(given: argparse.Namespace) -> bool:
    """Whether this is the worker that warns of a store that is set up badly: the first, when the service starts."""
    return bool(given.number == 1 and not given.replaces)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """What the process that starts workers says to one."""
    parser = argparse.ArgumentParser(prog="service.worker")
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--listener", type=int, required=True)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--opens-first", action="store_true")
    parser.add_argument("--replaces", action="store_true")
    parser.add_argument("--hung", action="store_true")
    return parser.parse_args(arguments)


def _beat(channel: socket.socket) -> None:
    with suppress(OSError):  # the parent is paused, and has enough to read; or it is gone, and so is this process soon
        channel.send(BEAT, socket.MSG_DONTWAIT)


def _end_with_parent(channel: socket.socket, orphaned: Event) -> None:
    """The other end of the channel is closed by the kernel, however the parent died: nobody would end this one then."""
    with suppress(ConnectionError):  # so it is said where beats of this process were still to be read there
        while channel.recv(1):
            pass
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
