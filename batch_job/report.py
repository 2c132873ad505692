"""What a run says of itself at the end: printed, ``report.json`` for machines, ``report.html`` for people."""

from datetime import UTC, datetime
from pathlib import Path

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from batch_job.atomic import write_atomic
from batch_job.into import Into
from batch_job.manifest import RunManifest, RunState

_TOP = 10


def write_report(run_dir: Path, manifest: RunManifest) -> None:
    """Writes both reports into the run's folder. They hold counts, codes and names of fields, and no feature values."""
    facts = report(manifest)
    page = _page().render(report=facts, rows=summary(manifest), manifest=manifest)
    write_atomic(run_dir / "report.json", lambda file: file.write(orjson.dumps(facts, option=orjson.OPT_INDENT_2)))
    write_atomic(run_dir / "report.html", lambda file: file.write(page.encode()))


def report(manifest: RunManifest) -> dict[str, object]:
    """The report as data."""
    return {
        **manifest.model_dump(mode="json", include=set(_REPORTED)),
        "snapshot": manifest.joined,
        "rows_per_second": _speed(manifest),
        "started_at": _moment(manifest.started_at),
        "finished_at": None if manifest.finished_at is None else _moment(manifest.finished_at),
        "data_as_of": None if manifest.data_as_of is None else _moment(manifest.data_as_of),
        "next": next_steps(manifest),
    }


_REPORTED = (
    "state",
    "reason",
    "snapshot",
    "model",
    "model_version",
    "input_path",
    "output_path",
    "partition",
    "entities_not_found",
    "into",
    "base",
    "counts",
    "seconds",
    "run_key",
    "created_by",
)


def summary(manifest: RunManifest) -> list[tuple[str, str]]:
    """The report as label and text, for the end of the command."""
    counts = manifest.counts
    rows = [
        ("model", f"{manifest.model} {manifest.model_version}"),
        ("input", f"{counts.input:,} rows of {manifest.input_path}"),
        ("scored", f"{counts.scored:,}"),
        ("rejected", _rejected(manifest)),
        ("duplicate", f"{counts.duplicate:,}"),
    ]
    if manifest.seconds:
        rows.append(("time", _times(manifest)))
    if manifest.entities_not_found is not None:
        rows.append(("not found", f"{manifest.entities_not_found:,} of the ids in {manifest.entities}"))
    rows.append(("parts", manifest.output_path))
    if manifest.state is not RunState.SCORED:
        rows.append(("snapshot", manifest.joined))
    if manifest.base is not None:
        rows.append(("into", _into(manifest, manifest.base)))
    rows.append(("state", f"{manifest.state.value}" + (f": {manifest.reason}" if manifest.reason else "")))
    return rows


def next_steps(manifest: RunManifest) -> list[str]:
    """What to do next, the most useful first."""
    steps = []
    if manifest.state is RunState.SCORED:
        steps.append("publish: the same command without --no-publish")
    if manifest.state is RunState.HELD and manifest.into is Into.ACTIVE:
        steps.append("look at what it would become: the same command with --into new")
    elif manifest.state is RunState.HELD:
        steps.append(f"look at the numbers, then: forescore promote {manifest.snapshot} --force")
    if manifest.state is RunState.UPDATED:
        steps.append("know that no rollback undoes this: one leads to the whole snapshot before")
    if manifest.state in {RunState.PROMOTED, RunState.UPDATED}:
        steps.append("ask for a score: forescore get ENTITY")
    if manifest.counts.rejections:
        first = manifest.counts.rejections[0]
        field = f" in {first.field}" if first.field is not None else ""
        steps.append(f"mend {first.code}{field}: it rejects the most rows ({first.rows:,})")
    return steps


def aligned(rows: list[tuple[str, str]]) -> str:
    """Label and text in two columns."""
    width = max((len(label) for label, _ in rows), default=0)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)


def _into(manifest: RunManifest, base: str) -> str:
    if manifest.into is Into.ACTIVE:
        return "the active snapshot itself, in place"
    return f"a copy of {base}, in which these entities were replaced or added"


def _rejected(manifest: RunManifest) -> str:
    reasons = manifest.counts.rejections
    more = f", and {len(reasons) - _TOP} more reasons" if len(reasons) > _TOP else ""
    detail = ", ".join(map(str, reasons[:_TOP]))
    return f"{manifest.counts.rejected:,}" + (f" ({detail}{more})" if reasons else "")


def _times(manifest: RunManifest) -> str:
    spent = ", ".join(f"{name} {_span(seconds)}" for name, seconds in manifest.seconds.items())
    speed = _speed(manifest)
    return spent + (f" ({speed:,.0f} rows/s)" if speed else "")


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _speed(manifest: RunManifest) -> float | None:
    """Rows through the slowest stage of the pipeline, each second."""
    slowest = max((manifest.seconds.get(name, 0.0) for name in ("read", "encode", "forward", "write")), default=0.0)
    return round(manifest.counts.input / slowest, 1) if slowest > 0 else None


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _page() -> Template:
    environment = Environment(loader=PackageLoader("batch_job"), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html")
