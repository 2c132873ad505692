"""ULIDs: 26 characters that sort by the time they were made (https://github.com/ulid/spec)."""

ENTROPY_BYTES = 10

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26
_MAX_MILLISECONDS = 2**48


def ulid(milliseconds: int, entropy: bytes) -> str:
    """The ULID of a moment (epoch milliseconds, 48 bits) and 10 bytes of randomness, both passed in."""
    if not 0 <= milliseconds < _MAX_MILLISECONDS:
        raise ValueError("a ULID holds 48 bits of epoch milliseconds")
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"a ULID takes {ENTROPY_BYTES} bytes of randomness")
    number = int.from_bytes(milliseconds.to_bytes(6) + entropy)
    return "".join(_CROCKFORD[number >> 5 * place & 31] for place in reversed(range(_LENGTH)))


def ulid_milliseconds(text: str) -> int | None:
    """The moment that a ULID was made of, in epoch milliseconds; None if the text is no ULID."""
    if len(text) != _LENGTH or not set(text) <= set(_CROCKFORD):
        return None
    number = sum(_CROCKFORD.index(sign) << 5 * place for place, sign in enumerate(reversed(text)))
    return number >> 8 * ENTROPY_BYTES
