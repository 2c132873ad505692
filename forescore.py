"""Scores ready before they are asked for: the ``forescore`` command, and the names that scripts and apps import.

A name is loaded when it is first asked for, so that ``forescore --help`` waits for neither torch nor pyarrow.
"""

import importlib
import importlib.util
import os
import platform
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from shared.errors import EXIT_FAILED, ForescoreError, SettingsError

if TYPE_CHECKING:
    from batch_job.run import score_batch
    from shared.build import BundleSpec, build_bundle
    from shared.bundle import load_bundle
    from shared.client.attempts import ClientPolicy
    from shared.client.clients import AsyncForescoreClient, ForescoreClient
    from shared.client.problems import (
        Forbidden,
        ForescoreProblem,
        InvalidId,
        NotCached,
        Problem,
        RejectedFeatures,
        TooLate,
        Unauthorized,
        Unavailable,
        UnexpectedAnswer,
        UnknownEntity,
        Unreachable,
    )
    from shared.client.results import Score
    from shared.client.wire import Item
    from shared.fit import fit
    from shared.graph import training_tensors
    from shared.schema import (
        Binary,
        Boolean,
        Categorical,
        MultiClass,
        MultiLabel,
        Numeric,
        Regression,
        Schema,
        Tensor,
    )
    from shared.settings import Settings

__all__ = [
    "AsyncForescoreClient",
    "Binary",
    "Boolean",
    "BundleSpec",
    "Categorical",
    "ClientPolicy",
    "Forbidden",
    "ForescoreClient",
    "ForescoreProblem",
    "InvalidId",
    "Item",
    "MultiClass",
    "MultiLabel",
    "NotCached",
    "Numeric",
    "Problem",
    "Regression",
    "RejectedFeatures",
    "Schema",
    "Score",
    "Tensor",
    "TooLate",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "UnknownEntity",
    "Unreachable",
    "build_bundle",
    "fit",
    "load_bundle",
    "score_batch",
    "training_tensors",
]

_HOMES = dict.fromkeys(__all__, "shared.schema") | {
    "AsyncForescoreClient": "shared.client.clients",
    "BundleSpec": "shared.build",
    "ClientPolicy": "shared.client.attempts",
    "Forbidden": "shared.client.problems",
    "ForescoreClient": "shared.client.clients",
    "ForescoreProblem": "shared.client.problems",
    "InvalidId": "shared.client.problems",
    "Item": "shared.client.wire",
    "NotCached": "shared.client.problems",
    "Problem": "shared.client.problems",
    "RejectedFeatures": "shared.client.problems",
    "Score": "shared.client.results",
    "TooLate": "shared.client.problems",
    "Unauthorized": "shared.client.problems",
    "Unavailable": "shared.client.problems",
    "UnexpectedAnswer": "shared.client.problems",
    "UnknownEntity": "shared.client.problems",
    "Unreachable": "shared.client.problems",
    "build_bundle": "shared.build",
    "fit": "shared.fit",
    "load_bundle": "shared.bundle",
    "score_batch": "batch_job.run",
    "training_tensors": "shared.graph",
}

_INTERRUPTED = 130
_GRACE_SECONDS = 10
_DEMO = Path("examples", "telco_churn", "demo.py")


def __getattr__(name: str) -> object:
    """Loads a public name from where it lives, and keeps it (https://peps.python.org/pep-0562/)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'forescore' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def main() -> NoReturn:
    """The ``forescore`` command: every mistake ends in one line on stderr and an exit code, never in a traceback."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """One call of the command: its exit code, with what went wrong on stderr."""
    command = typer.main.get_command(commands())
    try:
        code = command.main(arguments, prog_name="forescore", standalone_mode=False)
    except ForescoreError as error:
        return _complain(str(error), error.exit_code)
    except typer.TyperException as error:
        return _complain(_usage(error), error.exit_code)
    except typer.Abort:
        return _complain("stopped before it was done", EXIT_FAILED)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last place that can turn a fault of ours into one line
        return _complain(_fault(error), EXIT_FAILED)
    return code if isinstance(code, int) else 0


def commands() -> typer.Typer:
    """Every command in one app."""
    from batch_job import bundle_cli, doctor_cli, features_cli, schedule_cli  # noqa: PLC0415 - a training script needs no commands
    from batch_job import cli as batch_cli  # noqa: PLC0415 - the same
    from service import cli as service_cli  # noqa: PLC0415 - the same
    from service import keys_cli  # noqa: PLC0415 - the same

    app = typer.Typer(
        help="Scores ready before they are asked for.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",  # rich markup would take "[default: 8000]" for a style
    )
    for module in (bundle_cli, batch_cli, features_cli, schedule_cli, service_cli, keys_cli, doctor_cli):
        module.register(app)
    app.command(rich_help_panel="Serve")(up)
    app.command(rich_help_panel="Try it")(demo)
    app.command(rich_help_panel="Try it")(version)
    return app


def up(  # noqa: PLR0913 - a command's options are its parameters
    bundle: Annotated[
        Path | None, typer.Argument(help="The bundle's directory. [default: FORESCORE_BUNDLE]", show_default=False)
    ] = None,
    table: Annotated[
        str | None,
        typer.Argument(
            help="The table that the schedule scores. [default: FORESCORE_SCHEDULE__TABLE]", show_default=False
        ),
    ] = None,
    *,
    host: Annotated[str | None, typer.Option(help="The service's address. [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The service's port; 0 picks a free one. [default: 8000]")
    ] = None,
    schedule_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The schedule's port; 0 picks a free one. [default: 8001]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes of the service, as of `forescore serve`. [default: 1]")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Where features of the unseen come from, as of `forescore serve`.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Ask for no API keys, as of `forescore serve`.")] = False,
    cron: Annotated[
        str | None, typer.Option(metavar="LINE", help="When a run is due. [default: 0 2 * * *]", show_default=False)
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="The time zone of --cron. [default: UTC]", show_default=False)
    ] = None,
) -> None:
    """Run the store, the schedule and the service on this machine, until Ctrl-C.

    The store is the embedded one, unless FORESCORE_REDIS__URL is set. If a part ends by itself, all are stopped.
    """
    from shared.processes import Part, together  # noqa: PLC0415 - other commands do not need it
    from shared.settings import load_settings  # noqa: PLC0415 - the same

    given = {
        "FORESCORE_BUNDLE": None if bundle is None else str(bundle),
        "FORESCORE_SCHEDULE__TABLE": table,
        "FORESCORE_SCHEDULE__PORT": None if schedule_port is None else str(schedule_port),
        "FORESCORE_SCHEDULE__CRON": cron,
        "FORESCORE_SCHEDULE__TIMEZONE": timezone,
        "FORESCORE_SERVICE__HOST": host,
        "FORESCORE_SERVICE__PORT": None if port is None else str(port),
        "FORESCORE_SERVICE__WORKERS": None if workers is None else str(workers),
        "FORESCORE_KEYS__OPEN": "true" if open_ else None,
        "FORESCORE_FEATURES__URL": features,  # it may hold a password, which the list of processes would show
    }
    environment = {name: value for name, value in given.items() if value is not None}
    if "FORESCORE_SERVICE__DRAIN_SECONDS" not in os.environ:
        environment["FORESCORE_SERVICE__DRAIN_SECONDS"] = "0"  # nothing on this machine moves its calls elsewhere
    settings = load_settings()
    parts = [
        Part(
            name=name,
            command=[sys.executable, "-m", "forescore", command],
            probe=probe,
            environment={**environment, "PYTHONUNBUFFERED": "1"},
        )
        for name, command, probe in (("service", "serve", "/readyz"), ("schedule", "schedule", "/livez"))
    ]
    with _store_of(settings) as store:
        seconds = settings.schedule.stop_seconds + _GRACE_SECONDS
        code = together(parts, lambda urls: _say_where(urls, store), stop_seconds=seconds, said=typer.echo)
    raise typer.Exit(code)


@contextmanager
def _store_of(settings: "Settings") -> Iterator[str]:
    """Where the scores are kept: an embedded store is held open for all, so that it ends last."""
    if settings.redis.url is not None:
        yield "as FORESCORE_REDIS__URL says"
        return
    from shared.embedded import embedded_store  # noqa: PLC0415 - other commands do not need it

    with embedded_store(settings.home) as url:
        yield url


def _say_where(urls: Mapping[str, str], store: str) -> None:
    typer.echo(
        f"Forescore is up. Ctrl-C stops all of it.\n"
        f"  service   {urls['service']}/docs\n"
        f"  schedule  {urls['schedule']}/readyz\n"
        f"  store     {store}"
    )


def demo(
    *,
    check: Annotated[bool, typer.Option("--check", help="Ask the demo's questions, assert the answers, stop.")] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port to serve on; 0 picks a free one. [default: 8000]")
    ] = None,
) -> None:
    """Train, build, backfill and serve a churn model on real customers."""
    path = Path(__file__).parent / _DEMO
    spec = importlib.util.spec_from_file_location("forescore_demo", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SettingsError("demo: its files are in the repository and not in the package; clone it and run make demo")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    module.main(check, port)


def version() -> None:
    """Say which Forescore, Python and torch these are."""
    from importlib.metadata import version as version_of  # noqa: PLC0415 - brings the whole of email

    typer.echo(f"forescore {version_of('forescore')} (Python {platform.python_version()}, torch {version_of('torch')})")


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    hint = f". Try '{context.command_path} --help'" if context is not None else ""
    message = error.format_message().rstrip(".")
    return f"{message}{hint}" if message else ""  # empty when the help was printed instead


def _fault(error: Exception) -> str:
    """Names the kind and the place, not the message, which may hold a value of the user's table."""
    if os.environ.get("FORESCORE_LOG_LEVEL", "").lower() == "debug":
        traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"internal error: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}; "
        "FORESCORE_LOG_LEVEL=debug shows the traceback"
    )


def _complain(message: str, code: int) -> int:
    if message:
        typer.echo(f"forescore: {' '.join(message.split())}", err=True)
    return code


if __name__ == "__main__":
    main()
