"""The body of a request: bounded while it streams in, then JSON.

Starlette's own body limit answers in plain text whenever the length was declared, and this API answers in problems.
"""

import asyncio
from typing import Any

import orjson
from starlette.requests import Request

from shared.errors import BadRequest, BodyTooLarge, EncodedBody, RequestTooSlow
from shared.exact_json import loads


async def read_body(request: Request, limit: int, seconds: float | None = None) -> bytes:
    """The whole body; BodyTooLarge as soon as its declared or its received length exceeds ``limit`` bytes,
    RequestTooSlow if it is not there after so many seconds, EncodedBody where it is compressed: a small one could
    become any length.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise EncodedBody("the body has a Content-Encoding, and nothing is unpacked here; send it as it is")
    try:
        async with asyncio.timeout(seconds):
            return await _received(request, limit)
    except TimeoutError:
        raise RequestTooSlow(
            f"the body was not there after {seconds:g} s (FORESCORE_SERVICE__RECEIVE_SECONDS); send it in one go"
        ) from None


async def _received(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def parse_json(body: bytes) -> Any:
    """The value of JSON as RFC 8259 has it: NaN and Infinity are not JSON. BadRequest says where it goes wrong."""
    try:
        return loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: it breaks off at line {error.lineno} column {error.colno}") from None
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON: send UTF-8, without NaN or Infinity, not nested deeply") from None


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body has more than {limit} bytes (FORESCORE_SERVICE__MAX_BODY_BYTES); send several requests"
    )
