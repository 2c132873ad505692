"""``forescore doctor``: its options."""

import os
from pathlib import Path
from typing import Annotated

import typer

from batch_job.options import AsJson


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(rich_help_panel="Serve")(doctor)


def doctor(  # noqa: PLR0913 - a command's options are its parameters
    bundle: Annotated[
        Path | None, typer.Argument(help="The bundle's directory. [default: FORESCORE_BUNDLE]", show_default=False)
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model's name. [default: the bundle's, or the only one in the store]", show_default=False
        ),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(metavar="USER", help="The store's user of the service. [default: FORESCORE_REDIS__URL's]"),
    ] = None,
    writer: Annotated[
        str | None,
        typer.Option(metavar="USER", help="The store's user of the batch job. [default: FORESCORE_REDIS__URL's]"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds to wait for each reply of the store.")] = 2,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look for what would go wrong, before it does: settings, host, store, snapshots, bundle. It changes nothing.

    Exit codes: 0 all is well, or there are only notes and warnings; 1 something fails.
    """
    from batch_job.doctor import printing  # noqa: PLC0415 - `forescore --help` loads no torch
    from batch_job.doctor.doctor import Request, examine  # noqa: PLC0415 - the same
    from shared.clock import MonotonicClock, WallClock  # noqa: PLC0415 - the same

    request = Request(
        bundle=bundle,
        model=model,
        reader=reader,
        writer=writer,
        seconds=timeout,
        environment=dict(os.environ),
        wall=WallClock(),
        stopwatch=MonotonicClock(),
    )
    findings = list(examine(request))
    if as_json:
        typer.echo(printing.as_json(findings, strict=strict))
    else:
        printing.table(findings)
    raise typer.Exit(printing.exit_code(findings, strict=strict))
