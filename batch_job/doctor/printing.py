"""Findings for people, and for machines."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from batch_job.doctor.finding import Finding, Level

_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.FAILURE: "bold red"}
_PIPE_WIDTH = 160


def exit_code(findings: Sequence[Finding], *, strict: bool) -> int:
    """1 where something fails, or with ``strict`` where there is a warning; else 0."""
    bad = {Level.FAILURE, Level.WARNING} if strict else {Level.FAILURE}
    return int(any(finding.level in bad for finding in findings))


def as_json(findings: Sequence[Finding], *, strict: bool) -> str:
    """One JSON object: how many of each level there are, and all findings in order."""
    facts = {
        "exit_code": exit_code(findings, strict=strict),
        "counts": _counts(findings),
        "findings": [asdict(finding) for finding in findings],
    }
    return orjson.dumps(facts, option=orjson.OPT_INDENT_2).decode()


def table(findings: Sequence[Finding], console: Console | None = None) -> None:
    """Prints a table and a line that sums it up. Texts are printed as they are: none of them is markup."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH, file=console.file)  # a file has no edge at which to break lines
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("level", "check", "found", "next step"):
        shown.add_column(name, overflow="fold", no_wrap=name in {"level", "check"})
    for finding in findings:
        level = Text(finding.level.value, style=_STYLES[finding.level])
        shown.add_row(level, Text(finding.check), Text(finding.found), Text(finding.next_step))
    console.print(shown)
    console.print(Text(", ".join(f"{count} {level}" for level, count in _counts(findings).items())))


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    found = Counter(finding.level for finding in findings)
    return {level.value: found[level] for level in Level}
