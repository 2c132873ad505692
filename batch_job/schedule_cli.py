"""The command ``schedule``: its options."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batch_job.nightly import Nightly
from batch_job.options import DuplicateRule, Duplicates, MaxRejected, OrderBy, Where
from shared.errors import BundleNotFound, SettingsError

if TYPE_CHECKING:
    from shared.settings import Settings


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(rich_help_panel="Score")(schedule)


def schedule(  # noqa: PLR0913 - a command's options are its parameters
    bundle: Annotated[
        Path | None, typer.Argument(help="The bundle's directory. [default: FORESCORE_BUNDLE]", show_default=False)
    ] = None,
    table: Annotated[
        str | None,
        typer.Argument(
            help="The table, as of `forescore backfill`; of folders by date (dt=2026-11-30), the newest complete one. "
            "[default: FORESCORE_SCHEDULE__TABLE]",
            show_default=False,
        ),
    ] = None,
    *,
    cron: Annotated[
        str | None, typer.Option(metavar="LINE", help="When a run is due. [default: 0 2 * * *]", show_default=False)
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="The time zone of --cron. [default: UTC]", show_default=False)
    ] = None,
    order_by: OrderBy = None,
    duplicates: Duplicates = DuplicateRule.REFUSE,
    max_rejected: MaxRejected = None,
    where: Where = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port of its probes and metrics; 0 picks a free one. [default: 8001]"),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Do one run now, and end as a backfill does.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the settings in effect and the next five runs, and do nothing.")
    ] = False,
    night: Annotated[str | None, typer.Option(hidden=True, help="With --once: only if this night needs a run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --once or --show: print JSON for a machine.")] = False,
) -> None:
    """Score a table each night, publish and promote it, and tell of it on a port of its own.

    A night that was missed is made up for. Exit codes: 0 told to end, 130 interrupted; with --once those of backfill.
    """
    settings = _settings(cron, timezone, port)
    place, source = _places(settings, bundle, table)
    nightly = Nightly(
        bundle=place,
        table=source,
        order_by=order_by,
        duplicates=duplicates.value,
        max_rejected=max_rejected,
        where=where,
    )
    if show:
        from batch_job.schedule_show import show as run_show  # noqa: PLC0415 - `forescore --help` loads no apscheduler
        from shared.clock import WallClock  # noqa: PLC0415 - the same

        run_show(nightly, settings, WallClock(), as_json=as_json)
    elif once:
        from batch_job.once import once as run_once  # noqa: PLC0415 - `forescore --help` loads no torch

        since = _last_due(settings) if night is None else datetime.fromisoformat(night)
        run_once(nightly, settings, since, only_if_open=night is not None, as_json=as_json)
    else:
        from batch_job.scheduling import run_schedule  # noqa: PLC0415 - `forescore --help` loads no apscheduler

        raise typer.Exit(run_schedule(nightly, settings))


def _settings(cron: str | None, timezone: str | None, port: int | None) -> "Settings":
    """The environment's settings, and over them what the command line says."""
    from shared.settings import load_settings  # noqa: PLC0415 - `forescore --help` loads no pydantic

    settings = load_settings()
    given = {"cron": cron, "timezone": timezone, "port": port}
    told = {name: value for name, value in given.items() if value is not None}
    return settings.model_copy(update={"schedule": settings.schedule.model_copy(update=told)})


def _places(settings: "Settings", bundle: Path | None, table: str | None) -> tuple[Path, str]:
    place, source = bundle or settings.bundle, table or settings.schedule.table
    if place is None or source is None:
        raise SettingsError(
            "schedule: name a bundle and a table, forescore schedule BUNDLE TABLE, or set FORESCORE_BUNDLE and "
            "FORESCORE_SCHEDULE__TABLE"
        )
    if not place.is_dir():
        raise BundleNotFound(f"bundle {place}: there is no such directory; `forescore bundle build` makes one")
    return place, source


def _last_due(settings: "Settings") -> datetime:
    """What is unfinished since then is resumed."""
    from batch_job.schedule import Nights  # noqa: PLC0415 - `forescore --help` loads no apscheduler

    now = datetime.now(UTC)
    return Nights(settings.schedule.cron, settings.schedule.timezone).last(now) or now
