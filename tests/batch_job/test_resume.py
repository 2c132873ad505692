"""A run that was begun before: resumed, done, or another one."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.runs import Watch, Write, part_bytes, run

from batch_job.job import Means, open_job
from batch_job.lock import run_lock
from batch_job.readers import Reader
from batch_job.run import run_job
from batch_job.source import Selection
from shared.bundle import Bundle
from shared.errors import RunError, RunLocked
from shared.scorer import Scorer

IDS = list(range(40))
FEATURES_AND_ID = 4


def test_a_finished_run_is_reported_as_done(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """The same command again scores nothing and returns the same manifest."""
    path = write()
    first = run(path, tmp_path / "out", bundle, means)
    watch = Watch()
    assert run(path, tmp_path / "out", bundle, replace(means, observer=watch, entropy=lambda n: b"\1" * n)) == first
    assert watch.steps == ["locked", "begun"]


def test_a_lost_part_is_made_again(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """A finished run whose part was removed or damaged makes that part again, byte for byte."""
    path = write()
    run(path, tmp_path / "out", bundle, means)
    before = part_bytes(tmp_path / "out")
    (tmp_path / "out" / "parts" / "part-00000.parquet").unlink()
    (tmp_path / "out" / "parts" / "part-00001.parquet").write_bytes(b"PAR1")
    run(path, tmp_path / "out", bundle, means)
    assert part_bytes(tmp_path / "out") == before


def test_an_interrupted_run_resumes(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """D5: what was written stays, the rest is made, and the end is that of an undisturbed run."""
    path = write()
    run(path, tmp_path / "clean", bundle, means)

    class Interrupting(Watch):
        def step(self, name: str) -> None:
            if name == "part-00001.parquet written":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(path, tmp_path / "out", bundle, replace(means, observer=Interrupting()))
    assert list(part_bytes(tmp_path / "out")) == ["part-00000.parquet"]
    watch = Watch()
    run(path, tmp_path / "out", bundle, replace(means, observer=watch))
    assert watch.resumed == [True, False]
    assert part_bytes(tmp_path / "out") == part_bytes(tmp_path / "clean")


class CountingReader:
    """Reads as another does, and counts the rows and the chunks' columns that it is asked for."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.schema = reader.schema
        self.group_rows = reader.group_rows
        self.rows: Counter[int] = Counter()

    def batches(self, path: str, columns: Sequence[str], rows: int, *more: object) -> Iterator[pa.Table]:
        for batch in self._reader.batches(path, columns, rows, *more):  # type: ignore[arg-type]
            self.rows[len(columns)] += batch.num_rows
            yield batch


@pytest.mark.parametrize(("suffix", "read"), [(".parquet", 8), (".csv", 40)])
def test_a_resumed_run_reads_only_what_lacks(
    bundle: Bundle, write: Write, tmp_path: Path, means: Means, suffix: str, read: int
) -> None:
    """Killed at nine tenths: of Parquet the row groups of the last chunks, of CSV the lines, since they have no number
    until they are read; the end is that of an undisturbed run."""
    path = write(f"customers{suffix}", **{name: [1] * 40 for name in ("visits", "returns", "basket")}, customer_id=IDS)
    if suffix == ".parquet":
        pq.write_table(pq.read_table(path), path, row_group_size=4)
    run(path, tmp_path / "clean", bundle, means)

    class Killing(Watch):
        def step(self, name: str) -> None:
            if name == "part-00018.parquet written":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(path, tmp_path / "out", bundle, replace(means, observer=Killing()))
    (tmp_path / "out" / "parts" / "part-00003.parquet").unlink()  # what is missing need not be at the end
    job = open_job(path, bundle=bundle, chunk_size=2)
    reader = CountingReader(job.source.reader)
    run_job(replace(job, source=replace(job.source, reader=reader)), tmp_path / "out", means)
    assert reader.rows[FEATURES_AND_ID] == read
    assert part_bytes(tmp_path / "out") == part_bytes(tmp_path / "clean")


def test_force_starts_anew(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """``force`` gives the run another snapshot and scores again."""
    path = write()
    first = run(path, tmp_path / "out", bundle, means)
    watch = Watch()
    again = replace(means, observer=watch, entropy=lambda count: b"\1" * count)
    second = run(path, tmp_path / "out", bundle, again, force=True)
    assert second.snapshot != first.snapshot
    assert watch.resumed == [False, False]


@pytest.mark.parametrize(
    "options",
    [
        {"chunk_size": 3},
        {"duplicates": "last"},
        {"order_by": "visits"},
        {"selection": Selection(limit=3)},
        {"selection": Selection(where="visits > 0")},
    ],
)
def test_another_run_never_mixes_in(
    bundle: Bundle, write: Write, tmp_path: Path, means: Means, options: dict[str, object]
) -> None:
    """D9: other options are another run: refused in the folder, unless it is to be replaced."""
    path = write()
    run(path, tmp_path / "out", bundle, means)
    with pytest.raises(RunError, match=r"holds another run .* --out, or replace it with --force"):
        run(path, tmp_path / "out", bundle, means, **options)
    manifest = run(path, tmp_path / "out", bundle, means, force=True, **options)
    assert len(part_bytes(tmp_path / "out")) == len(manifest.parts)


def test_another_bundle_or_table_is_another_run(
    bundle: Bundle, other_bundle: Bundle, write: Write, tmp_path: Path, means: Means
) -> None:
    """D9: a changed bundle or a touched table never mixes into an old run."""
    path = write()
    run(path, tmp_path / "out", bundle, means)
    with pytest.raises(RunError, match="another run"):
        run(path, tmp_path / "out", other_bundle, means)
    os.utime(path, ns=(1, 1))
    with pytest.raises(RunError, match="another run"):
        run(path, tmp_path / "out", bundle, means)


def test_parts_of_another_host_kind_are_not_mixed(
    bundle: Bundle, scorer: Scorer, write: Write, tmp_path: Path, means: Means
) -> None:
    """A run that began where the golden rows give other bits is not resumed here."""
    path = write()
    run(path, tmp_path / "out", bundle, means)
    (tmp_path / "out" / "parts" / "part-00001.parquet").unlink()
    elsewhere = replace(scorer, golden_digest="e" * 64)
    with pytest.raises(RunError, match="golden rows score to other bits"):
        run(path, tmp_path / "out", bundle, replace(means, open_scores=lambda: elsewhere))


def test_a_table_that_changes_while_it_is_read_fails_the_run(
    bundle: Bundle, write: Write, tmp_path: Path, means: Means
) -> None:
    """D1: what was scored must be what the fingerprint says."""
    path = write()

    class Touching(Watch):
        def step(self, name: str) -> None:
            if name == "chunk 1 prepared":
                os.utime(path, ns=(1, 1))

    with pytest.raises(RunError, match="was changed while it was read"):
        run(path, tmp_path / "out", bundle, replace(means, observer=Touching()))


def test_one_process_at_a_time(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """A folder that is worked in is refused, with the process that works there."""
    with run_lock(tmp_path / "out"), pytest.raises(RunLocked, match=f"process {os.getpid()} is working there"):
        run(write(), tmp_path / "out", bundle, means)


def test_a_manifest_of_something_else_is_refused(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """A folder with another program's manifest.json is not touched."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text('{"name": "something"}')
    with pytest.raises(RunError, match="not a run's manifest"):
        run(write(), tmp_path / "out", bundle, means)
