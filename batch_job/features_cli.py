"""``forescore features load``: its options."""

from pathlib import Path
from typing import Annotated

import typer

from batch_job.options import (
    AsJson,
    ChunkSize,
    DuplicateRule,
    Duplicates,
    Entities,
    Limit,
    MaxRejected,
    OrderBy,
    Partition,
    Table,
    Where,
)


def register(app: typer.Typer) -> None:
    """Adds the group ``features``."""
    group = typer.Typer(no_args_is_help=True, help="The features of entities that the batch has not scored.")
    group.command()(load)
    app.add_typer(group, name="features", rich_help_panel="Score")


def load(  # noqa: PLR0913 - a command's options are its parameters
    table: Table,
    *,
    bundle: Annotated[
        Path | None,
        typer.Option(help="The bundle whose schema the table has. [default: FORESCORE_BUNDLE]", show_default=False),
    ] = None,
    ttl: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="SECONDS", help="How long they are kept. [default: FORESCORE_FEATURES__TTL_SECONDS]"
        ),
    ] = None,
    chunk_size: ChunkSize = None,
    order_by: OrderBy = None,
    duplicates: Duplicates = DuplicateRule.REFUSE,
    max_rejected: MaxRejected = None,
    limit: Limit = None,
    where: Where = None,
    entities: Entities = None,
    partition: Partition = None,
    as_json: AsJson = False,
) -> None:
    """Write a table of features into the store, as PUT /features does for one entity.

    Rows that break a rule of the schema are reported and not written. The same command again replaces what it wrote.
    Exit codes: 0 done, 1 failed, 2 usage.
    """
    from batch_job.features import LoadOptions, run  # noqa: PLC0415 - `forescore --help` loads no pyarrow
    from batch_job.source import Selection  # noqa: PLC0415 - the same

    run(
        LoadOptions(
            table=table,
            bundle=bundle,
            ttl_seconds=ttl,
            chunk_size=chunk_size,
            order_by=order_by,
            duplicates=duplicates.value,
            max_rejected=max_rejected,
            selection=Selection(partition=partition, where=where, limit=limit, entities=entities),
            as_json=as_json,
        )
    )
