"""``forescore key new``, ``key list`` and ``key check``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shared.errors import SettingsError, Unauthorized

if TYPE_CHECKING:
    from service.keys import Key
    from shared.settings import KeySettings

VARIABLE = "FORESCORE_API_KEY"
_SHOWN = 12
"""Digits of a digest that tell keys of one name apart."""
_DAY = 86_400

File = Annotated[
    Path | None, typer.Option("--file", help="The file of keys. [default: FORESCORE_KEYS__FILE]", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Adds the group of commands."""
    group = typer.Typer(no_args_is_help=True, help="Make, list and check API keys.")
    group.command("new")(new)
    group.command("list")(list_keys)
    group.command("check")(check)
    app.add_typer(group, name="key", rich_help_panel="Serve")


def new(
    *,
    name: Annotated[str, typer.Option(help="Whose key it is; log lines and metrics have this name.")],
    scope: Annotated[str, typer.Option(help="What it allows: read, write, admin, joined by commas.")] = "read",
    days: Annotated[int | None, typer.Option(min=1, help="How long it holds. [default: for ever]")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="The file to add its line to; it is made if it is not there.")
    ] = None,
) -> None:
    """Make an API key. It is shown this once: the file has only its SHA-256."""
    from service.keys import Key, digest_of, name_of, new_key, scopes_of  # noqa: PLC0415 - only where it is needed
    from shared.clock import WallClock  # noqa: PLC0415 - the same

    text = new_key()
    key = Key(
        name=name_of(name),
        scopes=scopes_of(scope),
        digest=digest_of(text.encode()),
        expires=None if days is None else WallClock().now() // 1 + days * _DAY,
    )
    if file is not None:
        _append(file, key.line())
    typer.echo(f"key   {text}")
    typer.echo(f"line  {key.line()}")
    typer.echo(
        "Give the key to the caller; nobody can show it again. "
        + (f"Its line is in {file}." if file is not None else "Put the line into the file of keys.")
    )


def list_keys(*, file: File = None) -> None:
    """List the keys that the service takes, without the keys."""
    from shared.clock import WallClock  # noqa: PLC0415 - only where it is needed

    now = WallClock().now()
    for key in _known(file):
        end = "" if key.is_valid(now) else "  expired"
        name, scopes, digest, *expires = key.line().split()
        typer.echo(f"{name}  {scopes}  {digest[:_SHOWN]}  {expires[0] if expires else 'for ever'}{end}")


def check(*, file: File = None) -> None:
    """Say what an API key allows. It is read from FORESCORE_API_KEY, else from standard input."""
    from service.keys import find  # noqa: PLC0415 - only where it is needed
    from shared.clock import WallClock  # noqa: PLC0415 - the same

    known = _known(file)
    presented = os.environ.get(VARIABLE) or sys.stdin.readline()
    key = find(known, presented.strip().encode())
    if key is None:
        raise Unauthorized("the key is none of those; `forescore key list` shows which there are")
    if not key.is_valid(WallClock().now()):
        raise Unauthorized(f"the key of {key.name} has expired; `forescore key new` makes another")
    typer.echo(f"a key of {key.name}: {', '.join(sorted(key.scopes))}")


def _known(file: Path | None) -> list[Key]:
    from service.keyring import read_keys  # noqa: PLC0415 - only where it is needed
    from shared.settings import KeySettings, load_settings  # noqa: PLC0415 - the same

    settings: KeySettings = load_settings().keys if file is None else KeySettings(file=file)
    if not settings.are_set:
        raise SettingsError("no file of keys: name it with --file, or set FORESCORE_KEYS__FILE")
    return read_keys(settings)


def _append(file: Path, line: str) -> None:
    """In one write, so that whoever reads at this moment sees a whole line or none."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
        with os.fdopen(descriptor, "rb+") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - 1))
            start = "" if opened.read(1) in {b"", b"\n"} else "\n"
            os.write(descriptor, f"{start}{line}\n".encode())
    except OSError as error:
        raise SettingsError(f"the file of keys {file}: {error.strerror}; name one that can be written") from None
