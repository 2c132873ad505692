"""What a run says of itself at the end."""

import json
from pathlib import Path

from batch_job.counts import Counts, RejectionCount
from batch_job.manifest import RunManifest, RunState, changed
from batch_job.report import aligned, next_steps, report, summary, write_report

COUNTS = Counts(
    input=1000,
    scored=900,
    rejected=60,
    duplicate=40,
    rejections=(
        RejectionCount(code="missing", field="<b>visits</b>", rows=50),
        RejectionCount(code="null_id", field=None, rows=10),
    ),
)


def finished(manifest: RunManifest, state: RunState = RunState.PROMOTED, reason: str | None = None) -> RunManifest:
    seconds = {"survey": 0.25, "forward": 2.0, "write": 0.5}
    return changed(manifest, state=state, reason=reason, counts=COUNTS, seconds=seconds, finished_at=60)


def test_the_summary_is_short_and_aligned(manifest: RunManifest) -> None:
    """What was scored, rejected and why, where the time went, and what became of the snapshot."""
    assert aligned(summary(finished(manifest))).splitlines() == [
        "model      purchase 1",
        "input      1,000 rows of t.parquet",
        "scored     900",
        "rejected   60 (50 missing in <b>visits</b>, 10 null_id)",
        "duplicate  40",
        "time       survey 250 ms, forward 2.0 s, write 500 ms (500 rows/s)",
        "parts      out",
        "snapshot   1-A",
        "state      promoted",
    ]


def test_the_next_step_follows_from_the_state(manifest: RunManifest) -> None:
    """The first thing to do, and the reason that costs the most rows."""
    mend = "mend missing in <b>visits</b>: it rejects the most rows (50)"
    assert next_steps(finished(manifest)) == ["ask for a score: forescore get ENTITY", mend]
    assert next_steps(finished(manifest, RunState.SCORED))[0] == "publish: the same command without --no-publish"
    assert "forescore promote 1-A --force" in next_steps(finished(manifest, RunState.HELD))[0]


def test_the_report_for_machines(manifest: RunManifest, tmp_path: Path) -> None:
    """report.json holds the counts, the times and the state."""
    write_report(tmp_path, finished(manifest, RunState.HELD, "coverage"))
    read = json.loads((tmp_path / "report.json").read_bytes())
    assert read == report(finished(manifest, RunState.HELD, "coverage"))
    assert (read["state"], read["reason"], read["counts"]["rejected"]) == ("held", "coverage", 60)
    assert (read["started_at"], read["finished_at"]) == ("1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z")


def test_the_page_escapes_what_it_shows(manifest: RunManifest, tmp_path: Path) -> None:
    """Names come from tables, and are text."""
    write_report(tmp_path, finished(manifest))
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;visits&lt;/b&gt;" in page
    assert "<b>visits" not in page
    assert "purchase 1" in page
