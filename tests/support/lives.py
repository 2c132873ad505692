"""Scored runs to be published over and over, in whatever order, and what each of them says of every entity.

They are written as a backfill leaves them, without a model: what publishes does not ask how a score came about. A new
run is a copy of one of them, with a name and a moment of its own.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from batch_job.counts import Counts, rejection_counts
from batch_job.into import Into
from batch_job.manifest import PARTS, Part, RunManifest, RunState, changed, read_manifest, write_manifest
from batch_job.parts import REJECTED, SCORED, PartInfo, PartPlan, part_digest, part_schema, write_part
from shared.codes import Code
from shared.schema import Binary
from shared.snapshot import Absent, Found, KnownRejected, Lookup
from shared.ulid import ulid

MODEL = "purchase"
VERSIONS = ("1", "2")
Says = Mapping[str, Found | KnownRejected]
"""What a whole snapshot says of each entity that it has."""

IDS = [f"C{number:03}" for number in range(130)]
TABLES = {
    "monday": (range(100), Into.ALONE),
    "tuesday": (range(10, 110), Into.ALONE),
    "shrunken": (range(30), Into.ALONE),
    "part in a copy": (range(90, 125), Into.NEW),
    "part in place": (range(5, 25), Into.ACTIVE),
}
"""Which entities are in it, so that it has three buckets or one, and where its scores go."""
_CHUNK = 40


@dataclass(frozen=True)
class Run:
    """A scored run. ``name``: under which it was scored; one that joins a snapshot in place keeps it."""

    out: Path
    name: str
    version: str
    into: Into
    says: Says


@dataclass(frozen=True)
class Library:
    """The runs that were scored, by table and version."""

    scored: Mapping[tuple[str, str], Run]

    def copy(self, table: str, version: str, out: Path, moment: int, entropy: bytes) -> Run:
        """A run over the same table at another moment, in a folder of its own."""
        known = self.scored[table, version]
        shutil.copytree(known.out / PARTS, out / PARTS, copy_function=os.link)
        manifest = read_manifest(known.out)
        assert manifest is not None
        name = f"{version}-{ulid(moment * 1000, entropy)}"
        told = {"snapshot": name, "started_at": moment, "run_key": f"key of {name}", "output_path": str(out)}
        write_manifest(out, changed(manifest, **told))
        says = {entity: replace(one, scored_at=moment) for entity, one in known.says.items()}
        return replace(known, out=out, name=name, says=says)


def library(folder: Path) -> Library:
    """Every table as scored by every version."""
    names = [(table, version) for table in TABLES for version in VERSIONS]
    return Library({(table, version): _scored(folder, table, version) for table, version in names})


def digest_of(version: str) -> str:
    """The digest of a version's bundle."""
    return f"bundle {version}"


def told(says: Says) -> dict[str, Lookup]:
    """What a look-up must answer for each of ``IDS``."""
    return {entity: says.get(entity, Absent()) for entity in IDS}


def _scored(folder: Path, table: str, version: str) -> Run:
    rows, into = TABLES[table]
    out = folder / f"{table} {version}"
    (out / PARTS).mkdir(parents=True)
    says = {IDS[row]: _fate(row, rows, version) for row in rows}
    infos = [_write(out, says, index, version) for index in range(-(-len(says) // _CHUNK))]
    parts = tuple(
        Part(file=info.plan.name, rows=info.plan.rows, sha256=part_digest(out / PARTS / info.plan.name))
        for info in infos
    )
    write_manifest(out, _manifest(version, _counts(says), parts))
    return Run(out, "not published", version, into, says)


def _fate(row: int, rows: range, version: str) -> Found | KnownRejected:
    """No two versions say the same of an entity, and few tables do; every tenth is rejected."""
    if row % 10 == rows.start % 10:
        return KnownRejected(code=Code.MISSING, field="visits", scored_at=0)
    return Found(scores=((row + rows.start + 256 * int(version)) / 1024,), scored_at=0, online=False)


def _write(out: Path, says: Says, index: int, version: str) -> PartInfo:
    chunk = dict(list(says.items())[index * _CHUNK :][:_CHUNK])
    plan = PartPlan(run_key="key", index=index, first_row=index * _CHUNK, rows=len(chunk))
    lines = [
        (entity, plan.first_row + place, *_line(one, version)) for place, (entity, one) in enumerate(chunk.items())
    ]
    schema = part_schema(["buys"])
    table = pa.table(dict(zip(schema.names, map(list, zip(*lines, strict=True)), strict=True)), schema=schema)
    info = PartInfo(plan=plan, counts=_counts(chunk))
    write_part(out / PARTS, table, info)
    return info


def _line(one: Found | KnownRejected, version: str) -> tuple[object, ...]:
    if isinstance(one, Found):
        return (SCORED, None, None, version, one.scores[0])
    return (REJECTED, one.code.text, one.field, version, None)


def _counts(says: Says) -> Counts:
    reasons = [(one.code.text, one.field) for one in says.values() if isinstance(one, KnownRejected)]
    scored = len(says) - len(reasons)
    return Counts(input=len(says), scored=scored, rejected=len(reasons), rejections=rejection_counts(reasons))


def _manifest(version: str, counts: Counts, parts: tuple[Part, ...]) -> RunManifest:
    return RunManifest(
        state=RunState.SCORED,
        run_key="key",
        snapshot=f"{version}-A",
        started_at=0,
        created_by="test",
        forescore_version="0",
        model=MODEL,
        model_version=version,
        bundle_digest=digest_of(version),
        golden_digest=f"golden {version}",
        code_revision=None,
        schema_fingerprint="s",
        outputs=(Binary("buys"),),
        fields=("visits",),
        input_path="t.parquet",
        input_fingerprint="i",
        input_files=1,
        output_path="out",
        data_as_of=0,
        chunk_size=_CHUNK,
        partition=None,
        where=None,
        limit=None,
        entities=None,
        order_by=None,
        duplicates="refuse",
        counts=counts,
        parts=parts,
    )
