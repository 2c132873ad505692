"""The tables in docs/, made from the code. ``make docs`` writes them; tests hold them equal."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from batch_job.schedule_metrics import ScheduleMetrics
from forescore import commands
from shared.errors import ForescoreError
from shared.metrics import Metrics
from shared.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"


def settings() -> str:
    """One row for each setting."""
    return table(("Variable", "Default", "Rule", "Meaning"), _settings_rows("FORESCORE_", Settings))


def errors() -> str:
    """One row for each class of error, a class below its parent."""
    head = ("Error", "HTTP status", "Problem type", "Exit code", "Meaning")
    return table(head, _error_rows(ForescoreError, depth=0))


def metrics() -> str:
    """One row for each metric."""
    registry = CollectorRegistry()
    Metrics(registry)
    ScheduleMetrics(registry)
    rows = [
        (
            f"`{metric.name}_total`" if metric.type == "counter" else f"`{metric.name}`",
            metric.type,
            ", ".join(f"`{label}`" for label in collector._labelnames),  # a label without a value has no public way
            metric.documentation,
        )
        for collector in registry._collector_to_names
        for metric in collector.describe()
    ]
    return table(("Metric", "Type", "Labels", "Meaning"), rows)


def command_reference() -> str:
    """One section for each command, with its arguments and options."""
    return "\n\n".join(_sections("forescore", typer.main.get_command(commands())))


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "errors": errors,
    "metrics": metrics,
    "commands": command_reference,
}
"""The page's name and what is between its two marks."""


def written(page: str) -> str:
    """What the page says between its marks."""
    return _marked(page)[1]


def write(page: str) -> None:
    """Writes what is between the page's marks anew."""
    before, _, after = _marked(page)
    (DOCS / f"{page}.md").write_text(f"{before}{TABLES[page]()}{after}", encoding="utf-8")


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _marked(page: str) -> tuple[str, str, str]:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    found = re.fullmatch(r"(.*<!-- from the code -->\n\n)(.*?)(\n\n<!-- end -->.*)", text, re.DOTALL)
    assert found, f"docs/{page}.md has lost its marks"
    return found[1], found[2], found[3]


def _settings_rows(prefix: str, model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name}".upper()
        if isinstance(field.default, BaseModel):
            yield from _settings_rows(f"{variable}__", type(field.default))
        else:
            yield f"`{variable}`", _default(field.default), _rule(field), field.description or ""


def _default(value: object) -> str:
    match value:
        case None:
            return "not set"
        case bool():
            return f"`{str(value).lower()}`"
        case SecretStr():
            return f"`{value.get_secret_value()}`"
    return f"`{value}`"


def _rule(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    words = {"gt": "above", "ge": "at least", "le": "at most", "lt": "below"}
    found: list[str] = []
    for rule in field.metadata:
        found += [f"{word} {getattr(rule, sign)}" for sign, word in words.items() if hasattr(rule, sign)]
        if pattern := getattr(rule, "pattern", None):
            found.append(f"`{pattern}`")
    return ", ".join(found)


def _error_rows(error: type[ForescoreError], depth: int) -> Iterator[tuple[str, ...]]:
    meaning = " ".join((error.__doc__ or "").replace("``", "`").split())
    indent = "&nbsp;&nbsp;" * depth
    yield f"{indent}`{error.__name__}`", str(error.status), f"`{error.problem}`", str(error.exit_code), meaning
    for child in error.__subclasses__():
        if child.__module__ == error.__module__:  # not the classes that a test makes
            yield from _error_rows(child, depth + 1)


def _sections(path: str, command: Any) -> Iterator[str]:  # typer's command classes are not public
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from _sections(f"{path} {name}", child)
        return
    parts = [f"## {path}", " ".join((command.help or "").split())]
    if rows := [_parameter(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]:
        parts.append(table(("Argument or option", "Default", "Meaning"), rows))
    yield "\n\n".join(part for part in parts if part)


def _parameter(parameter: Any) -> tuple[str, ...]:
    is_argument = parameter.param_type_name == "argument"
    names = [parameter.name.upper()] if is_argument else [*parameter.opts, *parameter.secondary_opts]
    default = "required" if parameter.required else "" if parameter.default is None else _default(parameter.default)
    return ", ".join(f"`{name}`" for name in names), default, " ".join((parameter.help or "").split())


if __name__ == "__main__":
    for each in TABLES:
        write(each)
