"""``forescore serve``."""

from __future__ import annotations

import socket
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shared.errors import BundleNotFound, SettingsError

if TYPE_CHECKING:
    from shared.settings import Settings

BACKLOG = 2048


class StoreKind(StrEnum):
    """As FORESCORE_STORE says it."""

    REDIS = "redis"
    NONE = "none"


def register(app: typer.Typer) -> None:
    """Adds the service's commands."""
    app.command(rich_help_panel="Serve")(serve)


def serve(  # noqa: PLR0913 - a command's options are its parameters
    bundle: Annotated[
        Path | None,
        typer.Argument(help="The bundle to score online with. [default: FORESCORE_BUNDLE]", show_default=False),
    ] = None,
    *,
    host: Annotated[str | None, typer.Option(help="The address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port to listen on; 0 picks a free one. [default: 8000]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that answer on that port. [default: 1]")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Where features of the unseen come from, as FORESCORE_FEATURES__URL says it."),
    ] = None,
    store: Annotated[
        StoreKind | None,
        typer.Option(help="none: look scores up in the snapshot's file alone, without Redis. [default: redis]"),
    ] = None,
    open_: Annotated[
        bool,
        typer.Option("--open", help="Listen without API keys on an address that other machines reach."),
    ] = False,
) -> None:
    """Answer score calls from the active snapshot, and score online what it does not have."""
    settings = _settings(bundle, features, store, host=host, port=port, workers=workers)
    with _bind(settings.service.host, settings.service.port) as listener:
        _require_keys(settings, listener, is_open=open_ or settings.keys.open)
        code = _run(settings, listener) if settings.service.workers == 1 else _watch_over(settings, listener)
    raise typer.Exit(code)


def _settings(
    bundle: Path | None, features: str | None, store: StoreKind | None, **service: str | int | None
) -> Settings:
    """The environment's settings, and over them what the command line says."""
    from pydantic import SecretStr  # noqa: PLC0415 - `forescore --help` loads no pydantic

    from shared.settings import load_settings  # noqa: PLC0415 - the same

    settings = load_settings()
    place = settings.bundle if bundle is None else bundle
    if place is None:
        raise SettingsError("no bundle: name one, forescore serve BUNDLE, or set FORESCORE_BUNDLE")
    if not place.is_dir():
        raise BundleNotFound(f"bundle {place}: there is no such directory; `forescore bundle build` makes one")
    given = {name: value for name, value in service.items() if value is not None}
    return settings.model_copy(
        update={
            "bundle": place,
            "store": settings.store if store is None else store.value,
            "service": settings.service.model_copy(update=given),
            "features": settings.features.model_copy(update={} if features is None else {"url": SecretStr(features)}),
        }
    )


def _bind(host: str, port: int) -> socket.socket:
    """The socket to listen on, taken before anything is loaded, so that a port in use is known at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingsError(
            f"{host}: not an address of this machine ({error.strerror}); choose another --host"
        ) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"port {port} on {host}: {error.strerror}; choose another with --port, or 0 for a free one"
        ) from None
    return listener


def _require_keys(settings: Settings, listener: socket.socket, *, is_open: bool) -> None:
    """The keys can be read; there are some wherever others can come from, unless it was said that none are wanted."""
    if settings.keys.are_set:
        from service.keyring import read_keys  # noqa: PLC0415 - only where there are keys

        read_keys(settings.keys)
    elif not is_open and not _is_loopback(listener):
        raise SettingsError(
            f"{settings.service.host}: other machines reach this address, and no API keys are set; make one with "
            "`forescore key new` and set FORESCORE_KEYS__FILE, or say --open (FORESCORE_KEYS__OPEN=true)"
        )


def _is_loopback(listener: socket.socket) -> bool:
    address = ip_address(listener.getsockname()[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _run(settings: Settings, listener: socket.socket) -> int:
    from service.server import answer, prepare  # noqa: PLC0415 - heavy; other commands do not pay for it

    prepare(settings)
    from service.app import create_app  # noqa: PLC0415 - the same
    from service.runtime import Dependencies  # noqa: PLC0415 - the same

    app = create_app(settings, dependencies=Dependencies(warms_up=True))
    _say_where(listener)
    return answer(app, listener, settings.service)


def _watch_over(settings: Settings, listener: socket.socket) -> int:
    from service.workers import watch_over  # noqa: PLC0415 - only where there are several

    return watch_over(settings, listener, lambda: _say_where(listener))


def _say_where(listener: socket.socket) -> None:
    typer.echo(f"Forescore listens on {_url(listener)} (try {_url(listener)}/docs)")


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
