"""Files that are whole or not there."""

import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from batch_job.atomic import writable, write_atomic
from shared.errors import RunError


def test_a_file_appears_whole(tmp_path: Path) -> None:
    """Each step is told, and the name appears with the content."""
    steps: list[str] = []
    write_atomic(tmp_path / "f", lambda file: file.write(b"abc"), steps.append)
    assert (tmp_path / "f").read_bytes() == b"abc"
    assert steps == ["f written", "f synced", "f renamed", f"{tmp_path.name} synced"]


def test_what_was_there_stays_if_writing_fails(tmp_path: Path) -> None:
    """D7: an abort is no close: the old file stays, and nothing is left beside it."""
    (tmp_path / "f").write_bytes(b"old")

    def fail(file: BinaryIO) -> None:
        file.write(b"half of the ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "f", fail)
    assert (tmp_path / "f").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_is_told(tmp_path: Path, number: int) -> None:
    """The error names the folder, why nothing can be written there, and what to do then."""
    text = rf"{tmp_path}: cannot be written to: {os.strerror(number).lower()}; make room .* run the same command again"
    with pytest.raises(RunError, match=text), writable(tmp_path):
        raise OSError(number, os.strerror(number), str(tmp_path / "part"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_what_is_not_about_the_folder_stays_what_it_is(tmp_path: Path, number: int) -> None:
    """A table that may not be read is no fault of the folder that is written to."""
    with pytest.raises(OSError, match=os.strerror(number)), writable(tmp_path):
        raise OSError(number, os.strerror(number), "/a/table")
