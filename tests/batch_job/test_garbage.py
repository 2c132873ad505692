"""What was there before the work began is left out of the collections of garbage."""

import gc
from collections.abc import Iterator

import pytest

from batch_job.garbage import old_objects_left_out


@pytest.fixture(autouse=True)
def nothing_left_out() -> Iterator[None]:
    """The whole test run leaves out what was there at its beginning; not these tests."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_a_collection_in_the_block_leaves_old_objects_out() -> None:
    """They are in no generation that is looked at, and are back behind the block, also where it fails."""
    old = [object()]
    with pytest.raises(KeyError):
        _fail_beside(old)
    assert _is_looked_at(old)


def test_what_somebody_else_left_out_stays_so() -> None:
    """A service has done it for good; a run within another ends before it."""
    with old_objects_left_out():
        with old_objects_left_out():
            pass
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()


def _fail_beside(old: object) -> None:
    with old_objects_left_out():
        young = [object()]
        assert not _is_looked_at(old)
        assert _is_looked_at(young)
        raise KeyError


def _is_looked_at(wanted: object) -> bool:
    return any(found is wanted for found in gc.get_objects())
