"""A run: a table becomes parts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.doubles import HANGS, misbehaving
from support.runs import Watch, Write, fates, rows, run

from batch_job.gates import RejectionLimit
from batch_job.job import Means, open_job
from batch_job.manifest import RunState, read_manifest
from batch_job.run import score_batch
from batch_job.source import Selection
from shared.bundle import Bundle
from shared.encode import Encoded
from shared.errors import DuplicateIds, SettingsError, SourceError, TooManyRejected
from shared.scorer import Scorer, score_each
from shared.settings import BatchSettings, Settings


def test_the_purchase_model(bundle: Bundle, write: Write, tmp_path: Path) -> None:
    """Four rows in chunks of two: 0.8581, 0.31, 0.7311, 0.69, in order, by the public function."""
    manifest = score_batch(write(), tmp_path / "out", chunk_size=2, bundle=bundle.path)
    assert fates(tmp_path / "out") == [("0", 0.8581), ("1", 0.31), ("2", 0.7311), ("3", 0.69)]
    assert [row["row"] for row in rows(tmp_path / "out")] == [0, 1, 2, 3]
    assert {row["model_version"] for row in rows(tmp_path / "out")} == {"1"}
    assert len(manifest.parts) == 2
    assert manifest.state is RunState.SCORED


def test_the_manifest_tells_the_run(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """The manifest on disk says what was run, by whom, on what, and what came of it."""
    manifest = run(write(), tmp_path / "out", bundle, means)
    assert read_manifest(tmp_path / "out") == manifest
    assert (manifest.model, manifest.model_version, manifest.bundle_digest) == ("purchase", "1", bundle.digest)
    assert manifest.snapshot == "1-01HF7YAT000000000000000000"
    assert manifest.started_at == manifest.finished_at == 1_700_000_000
    assert (manifest.counts.input, manifest.counts.scored) == (4, 4)
    assert set(manifest.seconds) == {"survey", "open", "read", "encode", "forward", "write"}
    assert json.loads((tmp_path / "out" / "report.json").read_bytes())["counts"]["scored"] == 4
    assert "purchase 1" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_bad_row_costs_itself(bundle: Bundle, write: Write, tmp_path: Path, means: Means, suffix: str) -> None:
    """D10: a row with two features is rejected before scoring; its neighbours are scored."""
    path = write(f"t.{suffix}", basket=[2, None, 0, 1])
    manifest = run(path, tmp_path / "out", bundle, means)
    assert fates(tmp_path / "out") == [("0", 0.8581), ("1", "missing", "basket"), ("2", 0.7311), ("3", 0.69)]
    assert (manifest.counts.input, manifest.counts.scored, manifest.counts.rejected) == (4, 3, 1)


def test_a_line_with_two_features_costs_itself(bundle: Bundle, tmp_path: Path, means: Means) -> None:
    """D10: a CSV line that is too short is rejected; its neighbours are scored."""
    path = tmp_path / "t.csv"
    path.write_text("customer_id,visits,returns,basket\n0,1,0,2\n1,0,3\n2,2,1,0\n3,1,1,1,9\n")
    manifest = run(path, tmp_path / "out", bundle, means)
    malformed = (None, "malformed_line", None)
    assert fates(tmp_path / "out") == [("0", 0.8581), malformed, ("2", 0.7311), malformed]
    assert manifest.counts.rejected == 2


def test_every_kind_of_bad_row_is_accounted_for(bundle: Bundle, tmp_path: Path, means: Means) -> None:
    """Bad numbers, missing values, null and invalid ids, duplicates and 007: each ends as the rules say."""
    path = tmp_path / "t.csv"
    path.write_text(
        "customer_id,visits,returns,basket,day\n"
        "007,1,0,2,2026-11-02\n"
        "7,1,0,2,2026-11-01\n"
        ",1,0,2,2026-11-01\n"
        "  ,1,0,2,2026-11-01\n"
        "a,one,0,2,2026-11-01\n"
        "b,1,,2,2026-11-01\n"
        "c,1e39,0,2,2026-11-01\n"
        "d,9007199254740993,0,2,2026-11-01\n"
        "e,NaN,0,2,2026-11-01\n"
        "007,0,0,0,2026-11-01\n"
        "f,bad,0,0,2026-11-02\n"
        "f,1,0,2,2026-11-01\n"
    )
    manifest = run(path, tmp_path / "out", bundle, means, order_by="day", chunk_size=5)
    assert fates(tmp_path / "out") == [
        ("007", 0.8581),
        ("7", 0.8581),
        (None, "null_id", "customer_id"),
        (None, "invalid_id", "customer_id"),
        ("a", "not_a_number", "visits"),
        ("b", "missing", "returns"),
        ("c", "not_finite", "visits"),
        ("d", "not_exact", "visits"),
        ("e", "not_a_number", "visits"),
        ("f", "not_a_number", "visits"),
    ]
    counts = manifest.counts
    assert (counts.input, counts.scored, counts.rejected, counts.duplicate) == (12, 2, 8, 2)
    assert [row["row"] for row in rows(tmp_path / "out")] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]


def test_integer_ids_are_exact(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """Ids above 2**53 that a float would make one stay two."""
    big = 2**53
    run(write(customer_id=[big, big + 1, big + 2, 2**63 - 1]), tmp_path / "out", bundle, means)
    assert [row["entity_id"] for row in rows(tmp_path / "out")] == [
        "9007199254740992",
        "9007199254740993",
        "9007199254740994",
        "9223372036854775807",
    ]


def test_csv_and_parquet_give_the_same_parts(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """C8: the same rows by two doors end in the same ids, bits and rejections."""
    columns = {"visits": [1, 0, None, 1], "basket": [2.5, 0.1, 3.0, 4.0]}
    for suffix in ("csv", "parquet"):
        run(write(f"t.{suffix}", **columns), tmp_path / suffix, bundle, means)
    assert rows(tmp_path / "csv") == rows(tmp_path / "parquet")


def test_the_batch_and_a_request_give_the_same_bits(
    bundle: Bundle, scorer: Scorer, write: Write, tmp_path: Path, means: Means
) -> None:
    """C8, M3: rows of a CSV file and the same rows as request values end in the same bits and the same reasons."""
    columns: dict[str, list[object]] = {
        "visits": [1.1, "x", None, 3],
        "returns": [0.3, 1, 1, 7],
        "basket": [2, 1, 0, 0.7],
    }
    path = tmp_path / "t.csv"
    values = zip(*columns.values(), strict=True)
    lines = [[str(row), *("" if cell is None else str(cell) for cell in cells)] for row, cells in enumerate(values)]
    path.write_text("\n".join(map(",".join, [["customer_id", *columns], *lines])))
    run(path, tmp_path / "out", bundle, means)
    requests = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    online = score_each(scorer, scorer.encoder.rows(requests))
    batch = rows(tmp_path / "out")
    assert [np.float32(batch[row]["buys"]) for row in online.rows] == online.scores[:, 0].tolist()
    reasons = [(rejection.row, rejection.code.text, rejection.field) for rejection in online.rejections]
    assert reasons == [(row["row"], row["code"], row["field"]) for row in batch if row["status"] == "rejected"]


def test_a_score_that_is_not_finite_is_never_written(
    bundle: Bundle, write: Write, tmp_path: Path, means: Means
) -> None:
    """C4: a NaN score rejects its row."""

    class NotFinite:
        golden_digest = "g" * 64

        def score(self, encoded: Encoded) -> np.ndarray:
            values = encoded.numeric[:, :1].copy()
            values[values == 2] = np.nan
            return values

    run(write(), tmp_path / "out", bundle, replace(means, open_scores=NotFinite))
    assert fates(tmp_path / "out")[2] == ("2", "non_finite_score", None)
    assert [fate[1] for fate in fates(tmp_path / "out")] == [1.0, 0.0, "non_finite_score", 1.0]


def test_a_row_that_hangs_is_rejected(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """D11: a model that never comes back for one row costs that row."""
    slow = replace(
        means,
        open_scores=misbehaving(),
        settings=Settings(home=tmp_path, batch=BatchSettings(chunk_timeout_seconds=1)),
    )
    run(write(visits=[1, HANGS, 2, 3]), tmp_path / "out", bundle, slow)
    assert fates(tmp_path / "out") == [("0", 1.0), ("1", "timeout", None), ("2", 2.0), ("3", 3.0)]


def test_duplicates_are_refused_before_anything_is_scored(
    bundle: Bundle, write: Write, tmp_path: Path, means: Means
) -> None:
    """A8: the table is refused unless told which row counts; then the duplicates are counted."""
    path = write(customer_id=["a", "a", "b", "a"])
    with pytest.raises(DuplicateIds, match="2 rows repeat"):
        run(path, tmp_path / "out", bundle, means)
    assert list((tmp_path / "out" / "parts").iterdir()) == []
    manifest = run(path, tmp_path / "last", bundle, means, duplicates="last")
    assert fates(tmp_path / "last") == [("b", 0.7311), ("a", 0.69)]
    assert (manifest.counts.input, manifest.counts.scored, manifest.counts.duplicate) == (4, 2, 2)


def test_too_many_rejected_rows_fail_the_run(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """The run fails and says why; a greater limit lets the same run pass without scoring again."""
    path = write(visits=[1, None, None, 1])
    with pytest.raises(TooManyRejected, match="2 of 4 rows rejected, more than --max-rejected 1: 2 missing in visits"):
        run(path, tmp_path / "out", bundle, means, allowed=RejectionLimit("1"))
    failed = read_manifest(tmp_path / "out")
    assert failed is not None
    assert failed.state is RunState.FAILED
    watch = Watch()
    manifest = run(path, tmp_path / "out", bundle, replace(means, observer=watch), allowed=RejectionLimit("50%"))
    assert manifest.state is RunState.SCORED
    assert watch.resumed == [True, True]
    assert manifest.snapshot == failed.snapshot


def test_the_limit_holds_for_a_finished_run_too(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """A run that was scored without a limit does not pass one that is asked for later."""
    path = write(visits=[1, None, None, 1])
    run(path, tmp_path / "out", bundle, means)
    with pytest.raises(TooManyRejected):
        run(path, tmp_path / "out", bundle, means, allowed=RejectionLimit("1"))


def test_a_table_without_rows_is_refused(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """A filter that leaves nothing would publish an empty snapshot: it is a mistake."""
    with pytest.raises(SourceError, match="no rows are left to score"):
        run(write(), tmp_path / "out", bundle, means, selection=Selection(where="visits > 100"))


def test_a_chunk_that_cannot_fit_is_refused(bundle: Bundle, write: Write) -> None:
    """The size of a chunk is bounded before memory is allocated."""
    with pytest.raises(SettingsError, match=r"a row of this model has 16 bytes, so a chunk would have 14\.9 GiB"):
        open_job(write(), bundle=bundle, chunk_size=10**9)
    with pytest.raises(SettingsError, match="at least 1 row"):
        open_job(write(), bundle=bundle, chunk_size=0)


def test_a_part_reads_as_a_table(bundle: Bundle, write: Write, tmp_path: Path, means: Means) -> None:
    """A part's columns have the documented types."""
    run(write(), tmp_path / "out", bundle, means)
    schema = pq.read_schema(tmp_path / "out" / "parts" / "part-00000.parquet")
    assert schema.names == ["entity_id", "row", "status", "code", "field", "model_version", "buys"]
    assert schema.field("row").type == pa.int64()
    assert schema.field("buys").type == pa.float32()
