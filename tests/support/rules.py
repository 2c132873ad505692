"""What monitoring/ has, read: alert rules, the dashboard, and the series that their expressions ask for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from prometheus_client import CollectorRegistry

from batch_job.schedule_metrics import ScheduleMetrics
from shared.metrics import Metrics

ROOT = Path(__file__).parents[2]
RULES = ROOT / "monitoring" / "alerts.yml"
DASHBOARD = ROOT / "monitoring" / "dashboard.json"
RUNBOOK = ROOT / "docs" / "runbook"
OF_PROMETHEUS = {"job", "instance"}
GRAFANA = {"$__rate_interval": "5m", "$instance": ".*", "$model": "churn"}
"""What Grafana puts in the place of its variables."""


@dataclass(frozen=True, slots=True)
class Selected:
    """One selector of an expression: the series' name, and each label with what it is compared with."""

    name: str
    matchers: tuple[tuple[str, str], ...]


def alerts() -> list[dict[str, Any]]:
    """Every alert rule."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Every panel of the dashboard that shows something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def selected(expression: str) -> list[Selected]:
    """Each selector in the expression; ValueError if it is no PromQL."""
    found: list[Selected] = []

    def look(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(Selected(node.name, tuple((one.name, one.value) for one in node.matchers.matchers)))

    promql_parser.walk(_parsed(expression), pre_visit=look)
    return found


def grouped(expression: str) -> set[str]:
    """The labels by which the expression adds up."""
    found: set[str] = set()

    def look(node: Any) -> None:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)

    promql_parser.walk(_parsed(expression), pre_visit=look)
    return found


def _parsed(expression: str) -> promql_parser.Expr:
    for variable, value in GRAFANA.items():
        expression = expression.replace(variable, value)
    return promql_parser.parse(expression)


def series() -> dict[str, set[str]]:
    """The labels of each series that the code has."""
    registry = CollectorRegistry()
    Metrics(registry)
    ScheduleMetrics(registry)
    found: dict[str, set[str]] = {}
    for collector in registry._collector_to_names:
        for metric in collector.describe():
            labels = set(collector._labelnames)  # type: ignore[attr-defined] # a label without a value has no public way
            found |= dict.fromkeys(_names(metric.name, metric.type), labels)
            if metric.type == "histogram":
                found[f"{metric.name}_bucket"] = labels | {"le"}
    return found


def _names(name: str, kind: str) -> list[str]:
    match kind:
        case "counter":
            return [f"{name}_total"]
        case "histogram":
            return [f"{name}_sum", f"{name}_count"]
    return [name]
