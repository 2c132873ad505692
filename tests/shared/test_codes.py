"""The reasons for a rejection."""

import pytest

from shared.codes import Code


def test_numbers_are_for_ever() -> None:
    """Snapshots hold these numbers, so none of them ever changes; new ones may join them."""
    first = {
        "missing": 1,
        "wrong_type": 2,
        "not_a_number": 3,
        "not_finite": 4,
        "not_exact": 5,
        "out_of_domain": 6,
        "unseen": 7,
        "not_boolean": 8,
        "wrong_shape": 9,
        "out_of_range": 10,
        "unknown_feature": 11,
        "null_id": 20,
        "invalid_id": 21,
        "non_finite_score": 30,
        "forward_failed": 31,
        "timeout": 32,
    }
    assert first.items() <= {code.text: code.value for code in Code}.items()


@pytest.mark.parametrize("code", list(Code))
def test_the_text_of_a_code_names_it(code: Code) -> None:
    """A code read back from a file is the code that was written."""
    assert Code.of(code.text) is code


@pytest.mark.parametrize("code", list(Code))
def test_a_code_fits_one_byte(code: Code) -> None:
    """The store and the encoder keep a code in one byte, in which 0 means well."""
    assert 0 < code.value < 256


def test_another_text_is_no_code() -> None:
    """An unknown name is an error and not some code."""
    with pytest.raises(KeyError):
        Code.of("no_such_reason")
