"""``forescore bundle build | check | show``."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from shared.errors import BundleError, ForescoreError, SettingsError
from shared.importing import imported
from shared.schema import Categorical, Feature, Output
from shared.settings import load_settings

if TYPE_CHECKING:
    from shared.build import BundleSpec
    from shared.bundle import Bundle
    from shared.scorer import Scorer
    from shared.tile import Tile

_SHOWN = 8

BundlePath = Annotated[Path, typer.Argument(help="The bundle's directory.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine.")]


def register(app: typer.Typer) -> None:
    """Adds the group ``bundle``."""
    group = typer.Typer(no_args_is_help=True, help="Build, check and show bundles.")
    group.command()(build)
    group.command()(check)
    group.command()(show)
    app.add_typer(group, name="bundle", rich_help_panel="Models")


def build(
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="A function that returns a forescore.BundleSpec.")
    ],
    out: Annotated[Path, typer.Argument(help="The directory to make.", show_default=False)],
) -> None:
    """Call a function of yours and build the bundle that it describes."""
    from shared.build import build_from, require_free  # noqa: PLC0415 - torch is loaded only where it is needed

    require_free(out)  # before the function, which may train for an hour
    bundle = build_from(_spec(function), out)
    typer.echo(f"built {bundle.name} {bundle.version} in {out}: {_tile(bundle.manifest.tile)}, digest {bundle.digest}")


def check(path: BundlePath, *, as_json: AsJson = False) -> None:
    """Load a bundle and prove it on this machine with its golden rows."""
    from shared.bundle import load_bundle  # noqa: PLC0415 - `forescore --help` loads no pyarrow
    from shared.scorer import open_scorer  # noqa: PLC0415 - the same, and torch

    settings = load_settings()
    scorer = open_scorer(load_bundle(path), device=settings.device, threads=settings.threads)
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


def _learnt(bundle: "Bundle", feature: Feature) -> Feature:
    """The feature with the vocabulary that was learnt for it."""
    if isinstance(feature, Categorical):
        return replace(feature, vocabulary=bundle.fitted.vocabularies[feature.name])
    return feature


def _described(value: Feature | Output) -> str:
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
