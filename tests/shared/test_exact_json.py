import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.exact_json import loads


@given(
    digits=st.integers(1, 25).flatmap(lambda size: st.integers(10 ** (size - 1), 10**size - 1)),
    sign=st.sampled_from(["", "-"]),
    tail=st.sampled_from(["", ".5", "e5", "E+07", "e-300", "E012", "e+100"]),
)
def test_every_number_reads_as_the_standard_library_reads_it(digits: int, sign: str, tail: str) -> None:
    """However long, and however its exponent is written: integers stay whole, and floats are the same ones."""
    text = f'{{"x": [{sign}{digits}{tail}]}}'
    [found], [expected] = loads(text.encode())["x"], json.loads(text)["x"]
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize("text", ["1e400", "-1E+0400", "[1e5, 9223372036854775808]", '{"e000": "1E999"}'])
def test_what_orjson_would_refuse_or_round_is_read(text: str) -> None:
    """A number beyond float64 is infinite, as the standard library has it, and text that looks like one is text."""
    assert loads(text.encode()) == json.loads(text)
