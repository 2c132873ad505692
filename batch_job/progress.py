"""How a run tells of itself while it works: a bar on a terminal, a line now and then elsewhere, JSON for machines."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TextIO

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from batch_job.manifest import RunManifest
from batch_job.parts import PartInfo
from shared.clock import Clock

LINE_SECONDS = 5.0
OPENED = "bundle opened"
"""The step before the first chunk."""


class Observer(Protocol):
    """What is told of a run. Calls come from several threads, in the order of the steps of each."""

    def planned(self, manifest: RunManifest, rows: int) -> None:
        """The run is about to score ``rows`` rows; the manifest is on disk."""

    def chunk_done(self, part: PartInfo, *, resumed: bool) -> None:
        """A part is there: made just now, or by an earlier process (``resumed``)."""

    def step(self, name: str) -> None:
        """A step that changes something outside the process was made. Also called before the first."""


class Silent:
    """Tells nothing."""

    def planned(self, manifest: RunManifest, rows: int) -> None: ...

    def chunk_done(self, part: PartInfo, *, resumed: bool) -> None: ...

    def step(self, name: str) -> None: ...


class Lines(Silent):
    """A line every few seconds: ``1,200,000 of 5,000,000 rows (24%), 410,000 rows/s, 9 s left``."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._rows = self._done = self._resumed = 0
        self._start = self._told = clock.now()

    def planned(self, manifest: RunManifest, rows: int) -> None:
        self._rows = rows
        self._start = self._told = self._clock.now()
        self._say(f"scoring {rows:,} rows of {manifest.input_path} with {manifest.model} {manifest.model_version}")

    def chunk_done(self, part: PartInfo, *, resumed: bool) -> None:
        self._done += part.plan.rows
        self._resumed += part.plan.rows if resumed else 0
        now = self._clock.now()
        if now - self._told >= LINE_SECONDS or self._done == self._rows:
            self._told = now
            self._say(self._line(now))

    def step(self, name: str) -> None:
        if name == OPENED:  # opening the bundle is not part of the speed
            self._start = self._clock.now()

    def _line(self, now: float) -> str:
        speed = (self._done - self._resumed) / max(now - self._start, 1e-3)
        left = f", {(self._rows - self._done) / speed:,.0f} s left" if 0 < self._done < self._rows and speed else ""
        return f"{self._done:,} of {self._rows:,} rows ({self._done / self._rows:.0%}), {speed:,.0f} rows/s{left}"

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class JsonLines(Silent):
    """One JSON object a line for each chunk; ``event`` says what it is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def planned(self, manifest: RunManifest, rows: int) -> None:
        self._say({"event": "planned", "rows": rows, "run_key": manifest.run_key, "snapshot": manifest.snapshot})

    def chunk_done(self, part: PartInfo, *, resumed: bool) -> None:
        counts = part.counts.model_dump(exclude={"rejections"})
        self._say({"event": "chunk", "index": part.plan.index, "resumed": resumed, **counts})

    def _say(self, event: dict[str, object]) -> None:
        print(orjson.dumps(event).decode(), file=self._stream, flush=True)


class _RowsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:,.0f} rows/s")


class Bar(Silent):
    """A bar on a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _RowsPerSecond(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("scoring", total=None)
        self._left = 0

    def shown(self) -> AbstractContextManager[object]:
        """Shows the bar for as long as the context is open."""
        return self._progress

    def planned(self, manifest: RunManifest, rows: int) -> None:
        self._left = rows
        self._progress.update(self._task, description=f"scoring with {manifest.model}", total=rows)

    def chunk_done(self, part: PartInfo, *, resumed: bool) -> None:
        if resumed:  # what was made before is not this bar's work, and would spoil its speed
            self._left -= part.plan.rows
            self._progress.update(self._task, total=self._left)
        else:
            self._progress.update(self._task, advance=part.plan.rows)


def observer_for(stream: TextIO, clock: Clock, *, as_json: bool) -> tuple[Observer, AbstractContextManager[object]]:
    """The observer that fits the stream, and the context in which it may show itself."""
    if as_json:
        return JsonLines(stream), nullcontext()
    if not stream.isatty():
        return Lines(stream, clock), nullcontext()
    bar = Bar(Console(file=stream))
    return bar, bar.shown()
