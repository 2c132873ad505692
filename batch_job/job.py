"""What a run is to do, and what names it: the run key."""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import orjson

from batch_job.duplicates import Duplicates
from batch_job.forward import Opener
from batch_job.lease import whoami
from batch_job.manifest import RunManifest, RunState
from batch_job.progress import Observer, Silent
from batch_job.source import EVERYTHING, Selection, Source, open_source
from shared.bundle import Bundle, load_bundle
from shared.clock import Clock, MonotonicClock, WallClock
from shared.engine import EngineChoice
from shared.errors import BundleConflict, SettingsError
from shared.schema import Schema
from shared.scorer import Scorer, open_scorer
from shared.settings import Settings, load_settings
from shared.ulid import ENTROPY_BYTES, ulid

MAX_CHUNK_BYTES = 4 * 1024**3
"""The most bytes of one encoded chunk; a few chunks are in memory at a time."""

_ITEM_BYTES = {"float32": 4, "int64": 8, "bool": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A table, a bundle, and how the one is scored with the other.

    ``key`` is the run key: a run under the same key would do the same again.
    """

    bundle: Bundle
    source: Source
    chunk_size: int
    duplicates: Duplicates
    data_as_of: int | None
    fingerprint: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a run works with besides its job: passed in, so that nothing asks the machine behind its back."""

    settings: Settings = field(default_factory=load_settings)
    observer: Observer = field(default_factory=Silent)
    clock: Clock = field(default_factory=WallClock)
    stopwatch: Clock = field(default_factory=MonotonicClock)
    entropy: Callable[[int], bytes] = os.urandom
    sleep: Callable[[float], None] = time.sleep
    open_scores: Opener | None = None
    """Opens the scores in place of the job's bundle; picklable."""


def open_job(  # noqa: PLR0913 - each is an option of `forescore backfill`, given by name
    path: str | Path,
    *,
    bundle: Bundle | Path | str,
    chunk_size: int,
    order_by: str | None = None,
    duplicates: Duplicates = "refuse",
    selection: Selection = EVERYTHING,
    data_as_of: int | None = None,
    model_version: str | None = None,
) -> Job:
    """Looks at the bundle and the table, before anything is scored; their errors say what is wrong.

    ``data_as_of``: epoch seconds; by default what the table's partitions or files say. ``model_version``: the one that
    the bundle must have.
    """
    found = bundle if isinstance(bundle, Bundle) else load_bundle(Path(bundle))
    _require_version(found, model_version)
    schema = found.schema
    _require_chunk_size(chunk_size, schema)
    source = open_source(
        str(path),
        entity=schema.entity,
        features=[feature.name for feature in schema.features],
        coded=[feature.name for feature in schema.categoricals],
        order_by=order_by,
        selection=selection,
    )
    fingerprint = source.files.digest
    decides = "order" if order_by is not None else duplicates
    rules = [order_by, decides, chunk_size, data_as_of, version("forescore")]
    return Job(
        bundle=found,
        source=source,
        chunk_size=chunk_size,
        duplicates=duplicates,
        data_as_of=source.as_of if data_as_of is None else data_as_of,
        fingerprint=fingerprint,
        key=hashlib.sha256(orjson.dumps([found.digest, fingerprint, source.filters(), *rules])).hexdigest(),
    )


def new_manifest(job: Job, out: Path, means: Means) -> RunManifest:
    """The manifest of a run that begins now."""
    bundle, selection = job.bundle, job.source.selection
    moment = means.clock.now()
    return RunManifest(
        state=RunState.SCORING,
        run_key=job.key,
        snapshot=f"{bundle.version}-{ulid(int(moment * 1000), means.entropy(ENTROPY_BYTES))}",
        started_at=int(moment),
        created_by=whoami(),
        forescore_version=version("forescore"),
        model=bundle.name,
        model_version=bundle.version,
        bundle_digest=bundle.digest,
        code_revision=bundle.manifest.code_revision,
        schema_fingerprint=bundle.schema.fingerprint,
        outputs=bundle.schema.outputs,
        fields=tuple(feature.name for feature in bundle.schema.features),
        input_path=job.source.files.table,
        input_fingerprint=job.fingerprint,
        input_files=len(job.source.files.files),
        output_path=str(out.resolve()),
        data_as_of=job.data_as_of,
        chunk_size=job.chunk_size,
        partition=selection.partition,
        where=selection.where,
        limit=selection.limit,
        entities=None if selection.entities is None else str(selection.entities),
        order_by=job.source.order_by,
        duplicates=job.duplicates,
    )


def opener(job: Job, means: Means) -> Opener:
    """What opens the scores; picklable, because the quarantine opens them again."""
    if means.open_scores is not None:
        return means.open_scores
    settings = means.settings
    engine = EngineChoice.of(settings)
    return partial(_open_bundle, job.bundle.path.resolve(), job.bundle.digest, device=settings.device, engine=engine)


def _open_bundle(path: Path, digest: str, *, device: str, engine: EngineChoice) -> Scorer:
    bundle = load_bundle(path)
    if bundle.digest != digest:
        raise BundleConflict(f"bundle {path} was changed while the run used it; run again")
    return open_scorer(bundle, device=device, threads=1, engine=engine)  # batch_job.forward says why


def _require_version(bundle: Bundle, version: str | None) -> None:
    if version is not None and version != bundle.version:
        raise SettingsError(
            f"--model-version {version[:80]}: the bundle {bundle.path} is {bundle.name} {bundle.version}; "
            "name the bundle of that version, or the version of that bundle"
        )


def _require_chunk_size(chunk_size: int, schema: Schema) -> None:
    if chunk_size < 1:
        raise SettingsError("--chunk-size: at least 1 row")
    row = 4 * len(schema.dense_inputs) + 8 * len(schema.categoricals) + 4 * len(schema.columns)
    row += sum(tensor.size * _ITEM_BYTES[tensor.dtype] for tensor in schema.tensors)
    if row * chunk_size > MAX_CHUNK_BYTES:
        raise SettingsError(
            f"--chunk-size {chunk_size}: a row of this model has {row} bytes, so a chunk would have "
            f"{row * chunk_size / 1024**3:.1f} GiB; at most {max(1, MAX_CHUNK_BYTES // row)} rows"
        )
