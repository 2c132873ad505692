"""The options that several commands share: one name, one meaning, one line of help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from batch_job.into import Into


class DuplicateRule(StrEnum):
    """What becomes of several rows of one entity where no --order-by says which counts."""

    REFUSE = "refuse"
    LAST = "last"


Table = Annotated[
    str,
    typer.Argument(
        help="A Parquet, CSV or Arrow file, a folder of them, a pattern in quotes, or an object-store URI.",
        show_default=False,
    ),
]
ChunkSize = Annotated[int | None, typer.Option(help="Rows of one chunk. [default: 50000]", show_default=False)]
OrderBy = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Of several rows of one entity, the greatest value here counts.")
]
Duplicates = Annotated[
    DuplicateRule, typer.Option(help="Several rows of one entity: refuse the table, or the last one counts.")
]
MaxRejected = Annotated[
    str | None, typer.Option(help="A share (10%) or a count of rejected rows above which it fails. [default: 10%]")
]
Limit = Annotated[int | None, typer.Option(help="Only the first so many rows, after the other filters.")]
Where = Annotated[
    str | None, typer.Option(metavar="CONDITION", help="Only rows such as \"country = 'DE' and tenure >= 3\".")
]
Entities = Annotated[Path | None, typer.Option(metavar="FILE", help="Only the ids in this file, one a line.")]
Partition = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Only this partition of a folder, such as dt=2026-11-01, or dt=2026-11-01..2026-11-30.",
    ),
]
Goes = Annotated[
    Into | None,
    typer.Option(
        "--into",
        help="Where a part of a table goes: a copy of the active snapshot, that one in place, or a snapshot alone.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine.")]
