"""How a run tells of itself while it works."""

import io
import json

from rich.console import Console

from batch_job.counts import Counts
from batch_job.manifest import RunManifest
from batch_job.parts import PartInfo, PartPlan
from batch_job.progress import OPENED, Bar, JsonLines, Lines, Observer, Silent, observer_for
from shared.testing.clock import FrozenClock


def part(index: int) -> PartInfo:
    plan = PartPlan(run_key="k", index=index, first_row=index * 100, rows=100)
    return PartInfo(plan=plan, counts=Counts(input=100, scored=100))


def work(observer: Observer, manifest: RunManifest, clock: FrozenClock) -> None:
    """Four chunks: one is there already, each of the others takes three seconds."""
    observer.planned(manifest, 400)
    observer.chunk_done(part(0), resumed=True)
    clock.advance(10)
    observer.step(OPENED)
    for index in (1, 2, 3):
        clock.advance(3)
        observer.chunk_done(part(index), resumed=False)


def test_a_line_every_few_seconds(manifest: RunManifest) -> None:
    """Rows, share, speed and the time that is left; opening the bundle and resumed chunks are no speed."""
    stream, clock = io.StringIO(), FrozenClock()
    work(Lines(stream, clock), manifest, clock)
    assert stream.getvalue().splitlines() == [
        "scoring 400 rows of t.parquet with purchase 1",
        "200 of 400 rows (50%), 33 rows/s, 6 s left",
        "400 of 400 rows (100%), 33 rows/s",
    ]


def test_json_lines(manifest: RunManifest) -> None:
    """Each event is one JSON object."""
    stream = io.StringIO()
    work(JsonLines(stream), manifest, FrozenClock())
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert events[0] == {"event": "planned", "rows": 400, "run_key": "k", "snapshot": "1-A"}
    assert [event["resumed"] for event in events[1:]] == [True, False, False, False]
    assert events[1]["scored"] == 100


def test_a_bar_on_a_terminal(manifest: RunManifest) -> None:
    """The bar counts the rows of this process, and goes when the work is done."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    bar = Bar(console)
    with bar.shown():
        work(bar, manifest, FrozenClock())
        shown = bar._progress.tasks[0]
        assert (shown.completed, shown.total) == (300, 300)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_observer_fits_the_stream() -> None:
    """A terminal has the bar, a file has lines, a machine has JSON."""
    clock = FrozenClock()
    assert isinstance(observer_for(Terminal(), clock, as_json=False)[0], Bar)
    assert isinstance(observer_for(io.StringIO(), clock, as_json=False)[0], Lines)
    assert isinstance(observer_for(Terminal(), clock, as_json=True)[0], JsonLines)


def test_silence(manifest: RunManifest) -> None:
    """Nobody has to watch."""
    work(Silent(), manifest, FrozenClock())
