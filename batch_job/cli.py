"""The commands ``backfill``, ``snapshots``, ``promote``, ``rollback``, ``retire`` and ``get``: their options."""

from pathlib import Path
from typing import Annotated

import typer

from batch_job.options import (
    AsJson,
    ChunkSize,
    DuplicateRule,
    Duplicates,
    Entities,
    Goes,
    Limit,
    MaxRejected,
    OrderBy,
    Partition,
    Table,
    Where,
)

Model = Annotated[
    str | None,
    typer.Option(
        help="The model's name. [default: that of FORESCORE_BUNDLE, or the only one in the store]", show_default=False
    ),
]
Snapshot = Annotated[str, typer.Argument(help="The snapshot's id, as `forescore snapshots` lists it.")]


def register(app: typer.Typer) -> None:
    """Adds the batch job's commands."""
    app.command(rich_help_panel="Score")(backfill)
    for command in (snapshots, promote, rollback, retire, get):
        app.command(rich_help_panel="Snapshots")(command)


def backfill(  # noqa: PLR0913 - a command's options are its parameters
    bundle: Annotated[Path, typer.Argument(help="The bundle's directory.", show_default=False)],
    table: Table,
    *,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder. [default: FORESCORE_HOME/runs/MODEL-KEY]", show_default=False)
    ] = None,
    chunk_size: ChunkSize = None,
    order_by: OrderBy = None,
    duplicates: Duplicates = DuplicateRule.REFUSE,
    max_rejected: MaxRejected = None,
    limit: Limit = None,
    where: Where = None,
    entities: Entities = None,
    partition: Partition = None,
    data_as_of: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How old the data is, in ISO form. [default: the partition's date, or the file's time]"
        ),
    ] = None,
    model_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Refuse a bundle of another version than this.")
    ] = None,
    into: Goes = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")] = False,
    no_publish: Annotated[
        bool, typer.Option("--no-publish", help="Score into part files; leave the store alone.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Start anew, also where a run is done or another is.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Where another run of the model is at work, wait until it is done.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score a table, publish the scores as a snapshot, and promote it.

    The same command again resumes what was interrupted. Exit codes: 0 done, 1 failed, 2 usage, 3 held back by a gate.
    """
    from batch_job.backfill import Options, preview, run  # noqa: PLC0415 - `forescore --help` loads no torch
    from batch_job.source import Selection  # noqa: PLC0415 - the same

    options = Options(
        bundle=bundle,
        table=table,
        out=out,
        chunk_size=chunk_size,
        order_by=order_by,
        duplicates=duplicates.value,
        max_rejected=max_rejected,
        selection=Selection(partition=partition, where=where, limit=limit, entities=entities),
        data_as_of=data_as_of,
        model_version=model_version,
        into=into,
        publish=not no_publish,
        force=force,
        wait=wait,
        as_json=as_json,
    )
    if dry_run:
        preview(options)
    else:
        run(options)


def snapshots(*, model: Model = None, as_json: AsJson = False) -> None:
    """List the snapshots in the store, the newest first."""
    from batch_job.snapshots import list_snapshots  # noqa: PLC0415 - `forescore --help` loads no pyarrow

    list_snapshots(model, as_json=as_json)


def promote(
    snapshot: Snapshot,
    *,
    force: Annotated[bool, typer.Option("--force", help="Promote it although a gate holds it back.")] = False,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Make a snapshot the active one."""
    from batch_job.snapshots import promote as run  # noqa: PLC0415 - `forescore --help` loads no pyarrow

    run(snapshot, model, force=force, as_json=as_json)


def rollback(*, model: Model = None, as_json: AsJson = False) -> None:
    """Go back to the snapshot that was active before, at once: a run at work is stopped from publishing."""
    from batch_job.snapshots import rollback as run  # noqa: PLC0415 - `forescore --help` loads no pyarrow

    run(model, as_json=as_json)


def retire(
    snapshot: Snapshot,
    *,
    force: Annotated[bool, typer.Option("--force", help="Also one that is held for review, or half-written.")] = False,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Remove a snapshot from the store."""
    from batch_job.snapshots import retire as run  # noqa: PLC0415 - `forescore --help` loads no pyarrow

    run(snapshot, model, force=force, as_json=as_json)


def get(
    entity: Annotated[str, typer.Argument(help="The entity's id.", show_default=False)],
    *,
    snapshot: Annotated[str | None, typer.Option(help="Ask this snapshot. [default: the active one]")] = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Print an entity's score from the store, or why it has none."""
    from batch_job.snapshots import get as run  # noqa: PLC0415 - `forescore --help` loads no pyarrow

    run(entity, snapshot, model, as_json=as_json)
