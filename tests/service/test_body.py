import asyncio
from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.types import Message

from service.body import parse_json, read_body
from shared.errors import BadRequest, BodyTooLarge


class _Wire:
    """What a server hands over, chunk by chunk, with a count of the chunks that were taken."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self.taken = 0
        self._chunks = chunks

    async def receive(self) -> Message:
        chunk = self._chunks[self.taken]
        self.taken += 1
        return {"type": "http.request", "body": chunk, "more_body": self.taken < len(self._chunks)}

    def request(self, length: int | None = None) -> Request:
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        return Request({"type": "http", "method": "POST", "headers": headers}, self.receive)


def test_a_body_within_the_limit_is_read_whole() -> None:
    """Chunks are put together in order, up to and including the limit."""
    assert asyncio.run(read_body(_Wire([b"ab", b"cd"]).request(), 4)) == b"abcd"


def test_a_declared_length_over_the_limit_is_refused_before_anything_is_read() -> None:
    """Inputs are bounded before memory is allocated."""
    wire = _Wire([b"abcde"])
    with pytest.raises(BodyTooLarge):
        asyncio.run(read_body(wire.request(length=5), 4))
    assert wire.taken == 0


def test_a_body_that_grows_over_the_limit_is_refused_where_it_does() -> None:
    """A body of unknown or false length is cut off at the limit, and the rest is not read."""
    wire = _Wire([b"ab", b"cde", b"more", b"more"])
    with pytest.raises(BodyTooLarge):
        asyncio.run(read_body(wire.request(length=3), 4))
    assert wire.taken == 2


@pytest.mark.parametrize("body", [b"", b"{", b'{"a": NaN}', b"[Infinity]", b"\xff", b"\xef\xbb\xbf{}", b"[" * 100_000])
def test_what_is_not_json_is_a_bad_request(body: bytes) -> None:
    """NaN and Infinity are no JSON, and a broken body harms nobody."""
    with pytest.raises(BadRequest):
        parse_json(body)


@pytest.mark.parametrize("body", [b"[NaN, 1e999]", b"[Infinity, 12345678901234567890]", b"[" * 5_000 + b"1e999"])
def test_what_is_not_json_is_a_bad_request_beside_long_numbers_too(body: bytes) -> None:
    """The exact parser refuses what the fast one refuses."""
    with pytest.raises(BadRequest):
        parse_json(body)


@pytest.mark.parametrize("number", [2**63, 2**64, 2**64 + 1, -(2**63) - 1, 10**40])
def test_an_integer_stays_the_integer_that_was_sent(number: int) -> None:
    """No integer becomes the float beside it: as an id it would be another entity, as a feature another value."""
    assert parse_json(f'{{"x": {number}}}'.encode()) == {"x": number}


def test_a_number_beyond_float64_costs_its_value_and_not_the_body() -> None:
    """1e999 is JSON; that it is not finite is for the feature's rule to say."""
    assert parse_json(b"[1, 1e999]") == [1, float("inf")]
