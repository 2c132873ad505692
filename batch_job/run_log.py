"""The one log line in which a run ends, whatever came of it."""

import sys
from pathlib import Path

from batch_job.manifest import RunManifest, RunState, read_manifest
from shared.clock import Clock
from shared.errors import LeaseHeld, RunError, RunLocked
from shared.settings import Settings
from shared.telemetry import configure_logging


class RunLine:
    """Times a run, and tells of it on standard error: for people on a terminal, as JSON elsewhere."""

    def __init__(self, settings: Settings, stopwatch: Clock) -> None:
        self._log = configure_logging(settings, sys.stderr)
        self._stopwatch = stopwatch
        self._start = stopwatch.now()

    def done(self, manifest: RunManifest) -> None:
        """It came to its end."""
        self._log.info("run ended", **self._facts(manifest))

    def failed(self, key: str, out: Path, error: BaseException) -> None:
        """It did not. What was refused before it began, such as one that somebody else has at work, is no run."""
        manifest = None if isinstance(error, RunLocked | LeaseHeld) else _known(out)
        if manifest is not None and manifest.run_key == key and manifest.state is not RunState.PROMOTED:
            self._log.error("run ended", exc_info=error, **self._facts(manifest))

    def _facts(self, manifest: RunManifest) -> dict[str, str | int | float]:
        counts = manifest.counts
        return {
            "state": manifest.state.value,
            "run_key": manifest.run_key,
            "model": manifest.model,
            "model_version": manifest.model_version,
            "snapshot": manifest.snapshot,
            "input": counts.input,
            "scored": counts.scored,
            "rejected": counts.rejected,
            "duplicate": counts.duplicate,
            "seconds": round(self._stopwatch.now() - self._start, 3),
        }


def _known(out: Path) -> RunManifest | None:
    try:
        return read_manifest(out)
    except RunError:
        return None
