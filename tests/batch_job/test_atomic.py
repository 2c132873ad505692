"""Files that are whole or not there."""

from pathlib import Path
from typing import BinaryIO

import pytest

from batch_job.atomic import write_atomic


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
