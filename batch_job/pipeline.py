"""Three stages that work at the same time, with little between them: memory stays flat, and one failure stops all."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, Thread
from typing import Any, Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")


def flow(produce: Iterable[A], transform: Callable[[A], B], consume: Callable[[B], None], *, depth: int = 2) -> None:
    """Runs ``produce`` in a thread, ``transform`` in this one, ``consume`` in another, in order.

    At most ``depth`` items wait between two stages. When it returns, everything was consumed; the first exception of
    any stage ends the others and is raised, and then not everything was.
    """
    made: Channel[A] = Channel(depth)
    done: Channel[B] = Channel(depth)
    alarm = _Alarm((made, done))

    def read() -> None:
        with alarm.guarded():
            made.fill(produce)

    def write() -> None:
        with alarm.guarded():
            for item in done:
                consume(item)

    threads = [Thread(target=read, name="read"), Thread(target=write, name="write")]
    for thread in threads:
        thread.start()
    with alarm.guarded():
        done.fill(map(transform, made))
    for thread in threads:
        thread.join()
    alarm.raise_first()


@contextmanager
def ahead(items: Iterable[A], *, depth: int = 2) -> Iterator[Iterator[A]]:
    """Lets a thread get the items, up to ``depth`` of them ahead of whoever takes them in the block.

    What getting one raises is raised in the block, where the item would have come.
    """
    made: Channel[A] = Channel(depth)
    alarm = _Alarm(())

    def read() -> None:
        with alarm.guarded():
            try:
                made.fill(items)
            except Exception:
                made.end()
                raise

    def taken() -> Iterator[A]:
        yield from made
        alarm.raise_first()

    thread = Thread(target=read, name="ahead")
    thread.start()
    try:
        yield taken()
    finally:
        made.stop()
        thread.join()


@contextmanager
def aside(consume: "Callable[[Channel[A]], None]", *, depth: int = 2) -> "Iterator[Channel[A]]":
    """Lets a thread consume what is put into the channel in the block. Whoever knows that it was all, ends it.

    At the end of the block the thread is waited for, and what it raised is raised; what comes after it failed is passed
    over. A block that fails stops it.
    """
    given: Channel[A] = Channel(depth)
    alarm = _Alarm(())

    def take() -> None:
        with alarm.guarded():
            try:
                consume(given)
            finally:
                given.drain()

    thread = Thread(target=take, name="aside")
    thread.start()
    try:
        yield given
        given.end()
    except BaseException:
        given.stop()
        raise
    finally:
        thread.join()
    alarm.raise_first()


class Stopped(Exception):
    """Another stage failed, so this one need not go on."""


class Channel(Generic[A]):
    """A bounded queue that can end, and that can be stopped from either side."""

    def __init__(self, capacity: int) -> None:
        self._items: deque[A] = deque()
        self._capacity = capacity
        self._ended = False
        self._stopped = False
        self._changed = Condition()

    def fill(self, items: Iterable[A]) -> None:
        """Puts all items in, waiting where it is full, and ends it. Stopped if the other side gave up."""
        for item in items:
            self.put(item)
        self.end()

    def put(self, item: A) -> None:
        """Puts an item in, waiting where it is full. Stopped if the other side gave up."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._items) < self._capacity)
            self.require_going()
            self._items.append(item)
            self._changed.notify_all()

    def end(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[A]:
        """The items until the end. Stopped if the other side gave up."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._ended or bool(self._items))
                self.require_going()
                if not self._items:
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item

    def drain(self) -> None:
        """Takes the rest, so that nobody waits for room. Stopped if the other side gave up."""
        for _ in self:
            pass

    def stop(self) -> None:
        """Ends both sides now."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def require_going(self) -> None:
        """Stopped if the other side gave up."""
        if self._stopped:
            raise Stopped


class _Alarm:
    """Stops all channels at the first exception, and keeps it."""

    def __init__(self, channels: "Sequence[Channel[Any]]") -> None:
        self._channels = channels
        self._errors: list[BaseException] = []

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except Stopped:
            return
        except BaseException as error:  # noqa: BLE001 - raised again by raise_first, in the caller's thread
            self._errors.append(error)
            for channel in self._channels:
                channel.stop()

    def raise_first(self) -> None:
        if self._errors:
            raise self._errors[0]
