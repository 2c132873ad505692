"""Part files: the result of one chunk each, whole or not there, the same bytes whenever they are written.

::

    entity_id      string, null where the row had none
    row            int64, the number of the input row
    status         scored | rejected
    code, field    why it was rejected, and by which field
    model_version  string
    ...            one float32 for each score, null where rejected

The file's metadata says which chunk of which run it is and how many rows became what, so that a resumed run knows a
part from its footer alone. Nothing in it depends on the clock or the machine.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from batch_job.atomic import no_step, write_atomic
from batch_job.counts import Counts
from shared.errors import AccountingBroken, RunError
from shared.parquet_footer import require_footer

SCORED = "scored"
REJECTED = "rejected"

_FIXED = (
    ("entity_id", pa.string()),
    ("row", pa.int64()),
    ("status", pa.string()),
    ("code", pa.string()),
    ("field", pa.string()),
    ("model_version", pa.string()),
)
_METADATA = b"forescore.part"
_FORMAT: dict[str, Any] = {
    "use_dictionary": ["status", "code", "field", "model_version"],
    "column_encoding": {"row": "DELTA_BINARY_PACKED"},
    "write_statistics": ["entity_id", "row"],
    "write_page_checksum": True,
    "store_schema": False,
}


class PartPlan(BaseModel):
    """One chunk of a run, of which a part is to be made."""

    model_config = ConfigDict(frozen=True)

    run_key: str
    index: int
    first_row: int
    rows: int

    @property
    def name(self) -> str:
        """The name of the part's file."""
        return f"part-{self.index:05d}.parquet"


class PartInfo(BaseModel):
    """What a part says of itself in its footer."""

    model_config = ConfigDict(frozen=True)

    plan: PartPlan
    counts: Counts


def plan_parts(run_key: str, rows: int, chunk_size: int) -> Iterator[PartPlan]:
    """The chunks of a run: each row is in exactly one."""
    for index, first in enumerate(range(0, rows, chunk_size)):
        yield PartPlan(run_key=run_key, index=index, first_row=first, rows=min(chunk_size, rows - first))


def part_schema(scores: Sequence[str]) -> pa.Schema:
    """The columns of a part of a model with these scores."""
    return pa.schema([*_FIXED, *((name, pa.float32()) for name in score_names(scores))])


def score_names(scores: Sequence[str]) -> tuple[str, ...]:
    """The scores' column names; one that would be taken for a column of the part itself says what it is."""
    taken = {name for name, _ in _FIXED}
    return tuple(f"{name} (score)" if name in taken else name for name in scores)


def write_part(folder: Path, table: pa.Table, info: PartInfo, step: Callable[[str], None] = no_step) -> None:
    """Writes the part of a chunk, whose words may be dictionaries: the file says only that they are text.

    AccountingBroken if the table has not the rows that the counts say.
    """
    info.counts.require_balanced(info.plan.name)
    expected = info.counts.scored + info.counts.rejected
    if table.num_rows != expected or info.counts.input != info.plan.rows:
        raise AccountingBroken(f"{info.plan.name}: {table.num_rows} rows for {info.counts}")

    def fill(file: BinaryIO) -> None:
        with pq.ParquetWriter(file, table.schema, compression=_compression(table.schema), **_FORMAT) as writer:
            writer.add_key_value_metadata({_METADATA: info.model_dump_json()})
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        file.seek(0)
        if pq.read_metadata(file).num_rows != expected:
            raise RunError(f"{info.plan.name}: the file has not the rows that were written; is the disk sound?")

    write_atomic(folder / info.plan.name, fill, step)


def _compression(schema: pa.Schema) -> dict[str, str]:
    """Scores are left as they are: a quarter of the time of writing a part would save a tenth of its size."""
    return {field.name: "none" if pa.types.is_floating(field.type) else "zstd" for field in schema}


def complete_part(folder: Path, plan: PartPlan) -> PartInfo | None:
    """The part of a chunk if it is there, whole and of this run; None if it must be made (again)."""
    try:
        metadata = pq.read_metadata(folder / plan.name)
        info = PartInfo.model_validate_json((metadata.metadata or {})[_METADATA])
        counts = info.counts.require_balanced(plan.name)
    except (OSError, pa.ArrowException, KeyError, ValidationError, AccountingBroken):
        return None
    whole = metadata.num_rows == counts.scored + counts.rejected and counts.input == plan.rows
    return info if whole and info.plan == plan else None


def read_part(path: Path, columns: Sequence[str] | None = None, *, coded: Sequence[str] = ()) -> pa.Table:
    """All rows of a part, its pages checked; only these columns if they are named. ``coded``: those of them that come
    as dictionaries."""
    with _readable(path), pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=coded) as file:
        return file.read(columns=columns)


def rows_with_id(path: Path) -> int:
    """How many rows of a part have an id, by its footer alone where that says so."""
    with _readable(path), pq.ParquetFile(path) as file:
        require_footer(file.metadata, path.stat().st_size)
        ids = file.metadata.row_group(0).column(0)
        alike = ids.physical_type == file.schema.column(0).physical_type  # else asking for what is known of it ends all
        if alike and ids.statistics is not None and ids.statistics.has_null_count:
            return int(file.metadata.num_rows) - int(ids.statistics.null_count)
    read = read_part(path, ["entity_id"])["entity_id"]
    return len(read) - int(read.null_count)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        raise RunError(f"{path}: the part cannot be read; remove it and run the backfill again") from None


def part_digest(path: Path) -> str:
    """sha256 of the file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
