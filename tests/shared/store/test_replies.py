"""Replies as they come off the wire: in any pieces, with refusals among them, or cut off."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError

from shared.errors import StoreDown, StoreError
from shared.store.loader import WireLoader
from shared.store.pipelined import Pipe

REPLIES = st.lists(st.integers(0, 500) | st.just("refused"), max_size=30)
PIECES = st.lists(st.integers(1, 40), max_size=60)


def _wire(replies: Sequence[object]) -> bytes:
    return b"".join(b"-ERR no\r\n" if reply == "refused" else b":%d\r\n" % reply for reply in replies)  # type: ignore[str-bytes-safe]


def _pieces(wire: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """The bytes in pieces of these sizes, and then the rest."""
    for size in sizes:
        if wire:
            yield wire[:size]
            wire = wire[size:]
    if wire:
        yield wire


class _Wire:
    """A client, its pool, a connection of it and its socket: what the loader touches of each."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.connection_pool = self._sock = self
        self.pieces, self.sent, self.disconnected, self.released = pieces, b"", False, False

    def get_connection(self) -> "_Wire":
        return self

    def send_packed_command(self, packed: Sequence[bytes]) -> None:
        self.sent += b"".join(packed)

    def recv(self, _: int) -> bytes:
        return next(self.pieces, b"")

    def disconnect(self) -> None:
        self.disconnected = True

    def release(self, _: object) -> None:
        self.released = True


@given(REPLIES, PIECES)
def test_the_loader_counts_or_refuses_however_the_bytes_come(replies: list[object], sizes: list[int]) -> None:
    """All replies are read; the markers are not counted; one refusal is an error, and the connection is not used on."""
    wire = _Wire(_pieces(_wire(replies), sizes))
    loader = WireLoader(wire, "here")  # type: ignore[arg-type]
    if "refused" in replies:
        with pytest.raises(StoreError):
            loader.count("p:", len(replies))
    else:
        numbers = [reply for reply in replies if isinstance(reply, int)]
        assert loader.count("p:", len(replies)) == sum(max(0, number - 1) for number in numbers)
    assert (next(wire.pieces, b""), wire.released, wire.disconnected) == (b"", True, "refused" in replies)
    assert wire.sent.count(b"HLEN") == len(replies)


@given(REPLIES.filter(bool), PIECES, st.data())
def test_a_loader_that_is_cut_off_never_takes_it_for_an_end(
    replies: list[object], sizes: list[int], data: st.DataObject
) -> None:
    """Wherever the connection ends, in the middle of a reply or between two."""
    whole = _wire(replies)
    wire = _Wire(_pieces(whole[: data.draw(st.integers(0, len(whole) - 1))], sizes))
    with pytest.raises(StoreDown):
        WireLoader(wire, "here").mark("p:", range(len(replies)))  # type: ignore[arg-type]
    assert (wire.released, wire.disconnected) == (True, True)


class _Transport:
    """What a pipe touches of the writer and its transport."""

    def __init__(self) -> None:
        self.transport = self
        self.aborted = False

    def write(self, packed: bytes) -> None: ...

    def abort(self) -> None:
        self.aborted = True


@given(
    st.lists(st.lists(st.integers(0, 500) | st.just("refused"), min_size=1, max_size=4), max_size=10), PIECES, st.data()
)
def test_each_caller_gets_its_own_replies_up_to_where_the_wire_is_cut(
    asked: list[list[object]], sizes: list[int], data: st.DataObject
) -> None:
    """Callers of several commands each: whoever was answered in whole has just that, and all others are told."""
    ends = [len(_wire([reply for one in asked[: place + 1] for reply in one])) for place in range(len(asked))]
    whole = _wire([reply for one in asked for reply in one])
    cut = data.draw(st.integers(0, len(whole)))

    async def _ask() -> list[object]:
        pipe = Pipe(_Transport(), 60)  # type: ignore[arg-type]
        waiting = [pipe.ask(b"", len(one)) for one in asked]
        for piece in _pieces(whole[:cut], sizes):
            pipe.data_received(piece)
        pipe.connection_lost(None)
        return await asyncio.gather(*waiting, return_exceptions=True)

    for found, one, end in zip(asyncio.run(_ask()), asked, ends, strict=True):
        if end > cut:
            assert isinstance(found, Disconnected)
        else:
            got = found if len(one) > 1 else [found]
            assert isinstance(got, list)
            assert ["refused" if isinstance(reply, ResponseError) else reply for reply in got] == one
