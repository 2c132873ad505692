"""What a soak found, each beside its bound."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from drills.soak.watch import Watch

SHARE, TIMES = 0.7, 3
MAX_SLOPE = 2.0
"""MiB a minute."""
MAX_P99_RATIO, P99_NOISE_MS = 1.5, 10.0
MIN_GOODPUT = 0.8
MAX_REFUSAL_MS = 250.0
MAX_RECOVERY_SECONDS = 2.0
CALM_RATIO, CALM_NOISE_MS = 3.0, 25.0
WINDOW_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``judged``: whether it decides; what a short run or a busy machine cannot decide is only told."""

    what: str
    found: str
    bound: str
    holds: bool
    judged: bool = True

    @property
    def word(self) -> str:
        if self.holds:
            return "held"
        return "NOT HELD" if self.judged else "not held (only told)"


def verdicts(found: dict[str, dict[str, Any]], watch: Watch, *, timed: bool) -> list[Verdict]:
    """All of them. ``timed``: whether bounds on time and memory decide."""
    return [*_answers(found, watch), *_times(found, watch, timed=timed)]


def _answers(found: dict[str, dict[str, Any]], watch: Watch) -> list[Verdict]:
    steady = found["steady"]
    wrong = sum(phase["wrong"] for phase in found.values())
    faults = [fault for phase in found.values() for fault in phase["faults"]]
    unasked = steady["refused"] + steady["late"] + steady["unsent"]
    return [
        Verdict(what="wrong answers, all phases", found=_first(wrong, faults), bound="0", holds=wrong == 0),
        Verdict(what="errors not asked for, steady", found=str(unasked), bound="0", holds=unasked == 0),
        Verdict(
            what="promotions meanwhile",
            found=_first(watch.promoted, watch.failed),
            bound="at least 1, none failed",
            holds=watch.promoted > 0 and not watch.failed,
        ),
    ]


def _times(found: dict[str, dict[str, Any]], watch: Watch, *, timed: bool) -> list[Verdict]:
    steady, over = found["steady"], found["over"]
    first, _, last = steady["p99_ms_by_thirds"]
    capacity = rate(found["capacity"])
    goodput = rate(over) / capacity if capacity else 0.0
    recovery = recovered_after(found["after"]["windows"], found["after"]["last_refused_due"], steady["p99_ms"])
    slope = watch.slope()
    return [
        Verdict(
            what="memory, second half",
            found=f"{slope:+.2f} MiB/min at {watch.memory[-1][1]:.0f} MiB",
            bound=f"at most {MAX_SLOPE:g} MiB/min",
            holds=slope <= MAX_SLOPE,
            judged=timed,
        ),
        Verdict(
            what="p99, last third against first",
            found=f"{last:.1f} ms against {first:.1f} ms",
            bound=f"{MAX_P99_RATIO:g} times, and {P99_NOISE_MS:g} ms of noise",
            holds=last <= MAX_P99_RATIO * first + P99_NOISE_MS,
            judged=timed,
        ),
        Verdict(
            what=f"goodput at {TIMES} times capacity",
            found=f"{goodput:.0%} ({rate(over):,.0f} of {capacity:,.0f}/s)",
            bound=f"at least {MIN_GOODPUT:.0%}",
            holds=goodput >= MIN_GOODPUT,
            judged=timed,
        ),
        Verdict(
            what="p99 of refusals",
            found=f"{over['refusal_p99_ms']:.0f} ms of {over['refused'] + over['late']:,}",
            bound=f"at most {MAX_REFUSAL_MS:g} ms",
            holds=over["refusal_p99_ms"] <= MAX_REFUSAL_MS,
            judged=timed,
        ),
        Verdict(
            what="recovery after it",
            found="not seen" if recovery is None else f"{recovery:.2f} s",
            bound=f"at most {MAX_RECOVERY_SECONDS:g} s",
            holds=recovery is not None and recovery <= MAX_RECOVERY_SECONDS,
            judged=timed,
        ),
    ]


def rate(phase: dict[str, Any]) -> float:
    """Good answers a second, without those that came after the phase."""
    return float(phase["in_time"] / phase["seconds"])


def recovered_after(windows: Sequence[float], last_refused: float, usual_ms: float) -> float | None:
    """Seconds until nothing is refused any more and answers take about what they took before; None: never."""
    bound = CALM_RATIO * usual_ms + CALM_NOISE_MS
    for number, p99 in enumerate(windows):
        if number * WINDOW_SECONDS >= last_refused and 0 <= p99 <= bound:
            return number * WINDOW_SECONDS
    return None


def around_promotions(steady: dict[str, Any], spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The usual p99 of a quarter of a second, in milliseconds: while a promotion is at work, and while none is."""
    during, outside = list[float](), list[float]()
    for number, p99 in enumerate(steady["windows"]):
        at = steady["started"] + number * WINDOW_SECONDS
        is_during = any(begin - WINDOW_SECONDS < at < end for begin, end in spans)
        if p99 >= 0:
            (during if is_during else outside).append(p99)
    return median(during or [0.0]), median(outside or [0.0])


def print_verdicts(console: Console, found: dict[str, dict[str, Any]], told: Sequence[Verdict]) -> None:
    """Two tables: the phases, and the verdicts."""
    head = ("phase", "seconds", "good/s", "p50", "p99", "refused", "late", "unsent", "wrong", "clients busy")
    table = Table(*head, title="Soak")
    for name, phase in found.items():
        times = [f"{phase['p50_ms']:.1f} ms", f"{phase['p99_ms']:.1f} ms"]
        counts = [f"{phase[key]:,}" for key in ("refused", "late", "unsent", "wrong")]
        table.add_row(name, f"{phase['seconds']:.0f}", f"{rate(phase):,.0f}", *times, *counts, f"{phase['busy']:.0%}")
    console.print(table)
    table = Table("what must hold", "found", "bound", "verdict")
    for one in told:
        table.add_row(one.what, one.found, one.bound, one.word)
    console.print(table)


def as_json(found: dict[str, dict[str, Any]], told: Sequence[Verdict]) -> dict[str, object]:
    return {"format": 1, "passed": passed(told), "phases": found, "verdicts": [asdict(one) for one in told]}


def passed(told: Sequence[Verdict]) -> bool:
    """Whether all that decides holds."""
    return all(one.holds or not one.judged for one in told)


def _first(count: int, texts: Sequence[str]) -> str:
    return f"{count:,}: {texts[0]}" if texts else f"{count:,}"
