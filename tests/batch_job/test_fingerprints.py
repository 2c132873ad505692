"""Fingerprints of ids."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from batch_job.fingerprints import fingerprints

texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=20)


@given(texts, texts)
def test_an_id_has_the_same_fingerprint_in_any_company(before: list[str], ids: list[str]) -> None:
    """Neither the neighbours nor the place of the batch in memory change it."""
    alone = [int(fingerprints(pa.array([text], pa.string()))[0]) for text in ids]
    assert fingerprints(pa.array([*before, *ids, *before], pa.string())[len(before) :][: len(ids)]).tolist() == alone


@given(st.sets(st.text(st.characters(codec="ascii"), min_size=8, max_size=8), max_size=50))
def test_ids_of_one_word_never_share_a_fingerprint(ids: set[str]) -> None:
    """Up to 8 bytes of one length the mixing can be undone."""
    assert len(set(fingerprints(pa.array(sorted(ids), pa.string())).tolist())) == len(ids)


def test_ids_that_differ_only_by_zeros_at_the_end_differ() -> None:
    """The length is part of it."""
    marks = fingerprints(pa.array(["a", "a\0", "a\0\0", ""], pa.string()))
    assert len(set(marks.tolist())) == 4


@given(st.integers(1, 20), st.data())
def test_ids_of_one_length_have_the_fingerprints_that_they_have_in_mixed_company(
    length: int, data: st.DataObject
) -> None:
    """They are marked together, by a shorter way, and to the same marks."""
    text = st.text(st.characters(codec="ascii"), min_size=length, max_size=length)
    ids = data.draw(st.lists(text, min_size=1, max_size=20))
    mixed = fingerprints(pa.array([*ids, "x" * (length + 1)], pa.string()))
    assert fingerprints(pa.array(ids, pa.string())).tolist() == mixed[:-1].tolist()
