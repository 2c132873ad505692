"""``forescore bundle build | compile | check | show``."""

import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from shared.errors import BundleError, EngineUnavailable, ForescoreError, SettingsError

if TYPE_CHECKING:
    from shared.build import BundleSpec
    from shared.bundle import Bundle
    from shared.schema import Feature, Output
    from shared.scorer import Scorer
    from shared.settings import Settings
    from shared.tile import Tile

_SHOWN = 8

BundlePath = Annotated[Path, typer.Argument(help="The bundle's directory.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine.")]


def register(app: typer.Typer) -> None:
    """Adds the group ``bundle``."""
    group = typer.Typer(no_args_is_help=True, help="Build, compile, check and show bundles.")
    group.command()(build)
    group.command(name="compile")(compile_for_this_host)
    group.command()(check)
    group.command()(show)
    app.add_typer(group, name="bundle", rich_help_panel="Models")


def build(
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="A function that returns a forescore.BundleSpec.")
    ],
    out: Annotated[Path, typer.Argument(help="The directory to make.", show_default=False)],
) -> None:
    """Call a function of yours, build the bundle that it describes, and compile it for this host.

    FORESCORE_ENGINE=export leaves out the compiling.
    """
    from shared.build import build_from, require_free  # noqa: PLC0415 - torch is loaded only where it is needed
    from shared.settings import load_settings  # noqa: PLC0415 - `forescore --help` loads no pydantic

    settings = load_settings()
    require_free(out)  # before the function, which may train for an hour
    bundle = build_from(_spec(function), out)
    typer.echo(f"built {bundle.name} {bundle.version} in {out}: {_tile(bundle.manifest.tile)}, digest {bundle.digest}")
    if settings.engine == "export":
        return
    try:
        _compile(bundle, settings)
    except EngineUnavailable as error:
        if settings.engine == "compiled":
            raise
        typer.echo(f"not compiled, so that the exported graph will be run: {error}", err=True)


def compile_for_this_host(path: BundlePath) -> None:
    """Compile a bundle's graph for this host, once, and prove it with the golden rows.

    The compiled graph goes into FORESCORE_ENGINE_CACHE; every later start finds it there.
    """
    from shared.bundle import load_bundle  # noqa: PLC0415 - `forescore --help` loads no pyarrow
    from shared.settings import load_settings  # noqa: PLC0415 - nor pydantic

    _compile(load_bundle(path), load_settings())


def _compile(bundle: "Bundle", settings: "Settings") -> None:
    from shared.engine import EngineChoice  # noqa: PLC0415 - torch, see above
    from shared.scorer import open_scorer  # noqa: PLC0415 - the same
    from shared.telemetry import configure_logging  # noqa: PLC0415 - the same

    configure_logging(settings, sys.stderr)
    choice = replace(EngineChoice.of(settings), wanted="compiled")
    typer.echo(f"compiling for this host, which happens once, into {choice.cache}")
    start = time.monotonic()
    scorer = open_scorer(bundle, device=settings.device, threads=settings.threads, engine=choice)
    typer.echo(f"compiled {bundle.name} {bundle.version} in {time.monotonic() - start:.1f} s: {_tile(scorer.tile)}")


def check(path: BundlePath, *, as_json: AsJson = False) -> None:
    """Load a bundle and prove it on this machine with its golden rows."""
    from shared.bundle import load_bundle  # noqa: PLC0415 - `forescore --help` loads no pyarrow
    from shared.engine import EngineChoice  # noqa: PLC0415 - the same, and torch
    from shared.scorer import open_scorer  # noqa: PLC0415 - the same
    from shared.settings import load_settings  # noqa: PLC0415 - the same, and pydantic
    from shared.telemetry import configure_logging  # noqa: PLC0415 - the same

    settings = load_settings()
    configure_logging(settings, sys.stderr)
    scorer = open_scorer(
        load_bundle(path), device=settings.device, threads=settings.threads, engine=EngineChoice.of(settings)
    )
    facts = _certified(scorer)
    if as_json:
        _print_json(facts)
        return
    _print_rows("certified", [(name.replace("_", " "), str(value)) for name, value in facts.items()])


def show(path: BundlePath, *, as_json: AsJson = False) -> None:
    """Print a bundle's contract: features and rules, tensors, outputs and classes."""
    from shared.bundle import load_bundle  # noqa: PLC0415 - `forescore --help` loads no pyarrow

    bundle = load_bundle(path)
    if as_json:
        _print_json(_contract(bundle))
        return
    _print_rows(f"{bundle.name} {bundle.version}", _facts(bundle))
    features = [(feature.name, _described(_learnt(bundle, feature))) for feature in bundle.schema.features]
    _print_rows("features", features)
    _print_rows("outputs", [(output.name, _described(output)) for output in bundle.schema.outputs])


def _spec(text: str) -> "BundleSpec":
    """Imports ``MODULE:FUNCTION``, calls it, and proves what it returns."""
    from shared.build import BundleSpec  # noqa: PLC0415 - see build
    from shared.importing import imported  # noqa: PLC0415 - the same

    function = imported(text)
    try:
        spec = function()
    except ForescoreError:
        raise
    except Exception as error:
        raise BundleError(f"{text} raised {type(error).__name__}: {error}; call it in Python to see where") from error
    if not isinstance(spec, BundleSpec):
        raise SettingsError(f"{text} returned {type(spec).__name__}; it must return a forescore.BundleSpec")
    return spec


def _certified(scorer: "Scorer") -> dict[str, object]:
    bundle = scorer.bundle
    return {
        "name": bundle.name,
        "version": bundle.version,
        "digest": bundle.digest,
        "golden_rows": bundle.manifest.golden_rows,
        "golden_digest": scorer.golden_digest,
        "tile": _tile(scorer.tile),
        "engine": scorer.engine,
        "device": scorer.device,
    }


def _contract(bundle: "Bundle") -> dict[str, object]:
    manifest = bundle.manifest.model_dump(mode="json", exclude={"fitted", "format"})
    fitted = {"schema": orjson.loads(bundle.schema.to_json()), "vocabularies": bundle.fitted.vocabularies}
    return {**manifest, "digest": bundle.digest, **fitted}


def _facts(bundle: "Bundle") -> list[tuple[str, str]]:
    manifest = bundle.manifest
    inputs = [f"{tensor.name} {tensor.dtype} [rows, {', '.join(map(str, tensor.shape))}]" for tensor in manifest.inputs]
    return [
        ("digest", bundle.digest),
        ("entity", bundle.schema.entity),
        ("inputs", "; ".join(inputs)),
        ("tile", _tile(manifest.tile)),
        ("engine", manifest.engine),
        ("golden rows", str(manifest.golden_rows)),
        ("created at", manifest.created_at),
        ("code revision", manifest.code_revision or "not given"),
        ("torch", manifest.torch_version),
    ]


def _learnt(bundle: "Bundle", feature: "Feature") -> "Feature":
    """The feature with the vocabulary that was learnt for it."""
    from shared.schema import Categorical  # noqa: PLC0415 - pydantic, see build

    if isinstance(feature, Categorical):
        return replace(feature, vocabulary=bundle.fitted.vocabularies[feature.name])
    return feature


def _described(value: "Feature | Output") -> str:
    """The kind of a feature or an output, and what is not at its default."""
    told: list[str] = [value.kind]
    for field in fields(value):
        content = getattr(value, field.name)
        if field.name in {"name", "kind"} or content == field.default:
            continue
        told.append(f"{field.name}={_short(content)}")
    return "; ".join(told)


def _short(content: object) -> str:
    if isinstance(content, tuple) and len(content) > _SHOWN:
        return f"{', '.join(map(str, content[:_SHOWN]))}, ... ({len(content)})"
    return ", ".join(map(str, content)) if isinstance(content, tuple) else str(content)


def _tile(tile: "Tile") -> str:
    if tile.multiples:
        return "any number of rows" if tile.rows == 1 else f"multiples of {tile.rows} rows"
    return f"exactly {tile.rows} row{'s' if tile.rows > 1 else ''}"


def _print_rows(title: str, rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    typer.echo(title)
    for name, value in rows:
        typer.echo(f"  {name:<{width}}  {value}")


def _print_json(content: dict[str, object]) -> None:
    typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
