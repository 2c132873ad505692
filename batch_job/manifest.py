"""``manifest.json``: what a run is, how far it is, and what came of it."""

from enum import StrEnum
from pathlib import Path
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from batch_job.atomic import write_atomic
from batch_job.counts import Counts
from batch_job.into import Into
from shared.errors import RunError
from shared.schema import Output

FILE = "manifest.json"
PARTS = "parts"

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class RunState(StrEnum):
    """How far a run is."""

    SCORING = "scoring"
    """Parts are being made."""
    SCORED = "scored"
    """All parts are there; nothing was published."""
    PUBLISHING = "publishing"
    """The snapshot is being written."""
    PROMOTED = "promoted"
    """The snapshot became the active one."""
    UPDATED = "updated"
    """The scores were written into the active snapshot."""
    HELD = "held"
    """A gate held it back: the snapshot is in the store, or, into the active one, nothing was written."""
    FAILED = "failed"
    """The run gave up; the same command tries again and keeps what is done."""


class Part(BaseModel):
    """One part file as it was when the run had all of them."""

    model_config = _FROZEN

    file: str
    rows: int
    sha256: str


class RunManifest(BaseModel):
    """A run. ``started_at`` and ``finished_at`` are epoch seconds; all scores of the run are as of ``started_at``."""

    model_config = _FROZEN

    format: Literal[1] = 1
    state: RunState
    reason: str | None = None
    """Why it failed or is held."""
    run_key: str
    snapshot: str
    started_at: int
    finished_at: int | None = None
    created_by: str
    forescore_version: str

    model: str
    model_version: str
    bundle_digest: str
    golden_digest: str | None = None
    code_revision: str | None
    schema_fingerprint: str
    outputs: tuple[Output, ...]
    fields: tuple[str, ...]

    input_path: str
    input_fingerprint: str
    input_files: int
    output_path: str
    data_as_of: int | None
    chunk_size: int
    partition: str | None
    where: str | None
    limit: int | None
    entities: str | None
    order_by: str | None
    duplicates: str

    into: Into | None = None
    """Where the scores go; None until they go anywhere."""
    base: str | None = None
    """The snapshot that was copied, or updated in place."""
    entities_not_found: int | None = None
    """How many of the listed ids the table does not have."""
    counts: Counts = Counts()
    parts: tuple[Part, ...] = ()
    seconds: dict[str, float] = {}
    """Where the time went, by stage, in the process that finished the stage."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the scores."""
        return tuple(column for output in self.outputs for column in output.columns)

    @property
    def joined(self) -> str:
        """The snapshot that holds the scores, once they are published."""
        return self.base if self.into is Into.ACTIVE and self.base is not None else self.snapshot

    @property
    def done(self) -> bool:
        """Whether all parts are there."""
        return self.state not in {RunState.SCORING, RunState.FAILED}

    def part_paths(self, run_dir: Path) -> list[Path]:
        """The part files, in order."""
        return [run_dir / PARTS / part.file for part in self.parts]


def read_manifest(run_dir: Path) -> RunManifest | None:
    """The manifest of a run's folder; None if there is none. RunError if it is not one of this program's."""
    try:
        text = (run_dir / FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunError(f"{run_dir / FILE}: cannot be read: {(error.strerror or 'unknown').lower()}") from None
    try:
        return RunManifest.model_validate_json(text)
    except ValidationError as error:
        place = ".".join(str(step) for step in error.errors(include_input=False, include_url=False)[0]["loc"])
        raise RunError(f"{run_dir / FILE}: not a run's manifest ({place or 'text'}); use another --out") from None


def write_manifest(run_dir: Path, manifest: RunManifest) -> RunManifest:
    """Puts the manifest in place of the one before, at once. AccountingBroken before a wrong one is written."""
    manifest.counts.require_balanced(str(run_dir))
    text = orjson.dumps(manifest.model_dump(mode="json"), option=orjson.OPT_INDENT_2) + b"\n"
    write_atomic(run_dir / FILE, lambda file: file.write(text))
    return manifest


def changed(manifest: RunManifest, **fields: object) -> RunManifest:
    """The manifest with some fields replaced, checked again."""
    return RunManifest.model_validate(manifest.model_copy(update=fields).model_dump())
