"""What wakes a person at night is true: rules, dashboard and runbook speak of what there is, and of all of it."""

import re
import string
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from support.rules import (
    DASHBOARD,
    OF_PROMETHEUS,
    ROOT,
    RULES,
    RUNBOOK,
    alerts,
    dashboard,
    grouped,
    panels,
    selected,
    series,
)
from support.tables import written

from batch_job.outcome import OUTCOMES
from forescore import commands
from shared.errors import ForescoreError
from shared.metrics import LOOKUPS, REFUSED, RENEWALS, RUNG_FAILURES, RUNGS, SHED, WRITE_BACKS

ALERTS = {rule["alert"]: rule for rule in alerts()}
PAGES = sorted(RUNBOOK.glob("*.md"))
SHOWN = {f"{panel['title']} {target['refId']}": target["expr"] for panel in panels() for target in panel["targets"]} | {
    one["name"]: one["expr"] for one in dashboard()["annotations"]["list"]
}
ASKED = {name: rule["expr"] for name, rule in ALERTS.items()} | SHOWN
SERIES = series()
VALUES = {
    ("forescore_lookups_total", "outcome"): LOOKUPS,
    ("forescore_answers_total", "rung"): RUNGS,
    ("forescore_rung_failures_total", "rung"): {rung for rung, _ in RUNG_FAILURES},
    ("forescore_rung_failures_total", "reason"): {reason for _, reason in RUNG_FAILURES},
    ("forescore_refused_requests_total", "reason"): REFUSED,
    ("forescore_write_backs_total", "outcome"): WRITE_BACKS,
    ("forescore_renewals_total", "outcome"): RENEWALS,
    ("forescore_shed_rows_total", "reason"): SHED,
    ("forescore_schedule_runs_total", "outcome"): OUTCOMES,
}
SECTIONS = ["What callers see", "Look first", "Cause and remedy", "When it ends"]
NOT_OURS = {"up", "ALERTS"}
"""Series that Prometheus itself makes."""


@pytest.mark.parametrize("name", list(ASKED))
def test_it_asks_for_what_there_is(name: str) -> None:
    """Each expression is PromQL, and its series, labels and outcomes are those of the code."""
    found = selected(ASKED[name])
    assert found
    for one in found:
        if one.name in NOT_OURS:
            continue
        known = SERIES[one.name] | OF_PROMETHEUS
        for label, value in one.matchers:
            assert label in known, f"{one.name} has no label {label}"
            assert set(value.split("|")) <= set(VALUES.get((one.name, label), value.split("|")))
    assert grouped(ASKED[name]) <= OF_PROMETHEUS.union(*(SERIES.get(one.name, set()) for one in found))


def test_every_metric_is_shown() -> None:
    """The dashboard has a panel for each metric but those that say something of the log."""
    shown = {re.sub(r"_(bucket|sum|count)$", "", one.name) for text in SHOWN.values() for one in selected(text)}
    told = {re.sub(r"_(bucket|sum|count)$", "", name) for name in SERIES}
    assert told - shown == {"forescore_request_lines_left_out_total"}


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    """One page each in docs/runbook/, which the index and the alert name."""
    assert [page.stem for page in PAGES if page.stem != "README"] == sorted(ALERTS)
    listed = re.findall(r"\]\((\w+)\.md\)", (RUNBOOK / "README.md").read_text(encoding="utf-8"))
    assert listed == list(ALERTS)


@pytest.mark.parametrize("name", list(ALERTS))
def test_an_alert_says_what_a_person_needs(name: str) -> None:
    """Severity, summary, description, and the page that tells what to do."""
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["annotations"]["summary"].endswith(".")
    page = ROOT / rule["annotations"]["runbook"]
    assert page.name == f"{name}.md"
    assert page.read_text(encoding="utf-8").startswith(f"# {name}\n\n")


@pytest.mark.parametrize("name", list(ALERTS))
def test_a_page_has_every_part(name: str) -> None:
    """What it means, what callers see, where to look first, cause and remedy, when it ends; none of them empty."""
    text = (RUNBOOK / f"{name}.md").read_text(encoding="utf-8")
    meaning, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    assert [part.partition("\n")[0] for part in parts] == SECTIONS
    assert all(len(part.partition("\n")[2].strip()) > 10 for part in (meaning, *parts))
    assert len(re.findall(r"^\| (?!cause|---)", text, flags=re.MULTILINE)) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_speaks_of_what_there_is(page: Path) -> None:
    """Settings, commands, metrics, errors and pages that it names are there."""
    text = page.read_text(encoding="utf-8")
    settings = set(re.findall(r"FORESCORE_[A-Z_]+", written("settings")))
    assert set(re.findall(r"FORESCORE_[A-Z_]+", text)) <= settings
    group: Any = typer.main.get_command(commands())
    assert set(re.findall(r"`forescore ([a-z]+)", text)) <= set(group.commands)
    assert set(re.findall(r"\bforescore_[a-z_]+", text)) <= set(SERIES) | {_base(name) for name in SERIES}
    assert set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", text)) <= _errors(ForescoreError)
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (page.parent / link).exists(), link


def test_every_rule_is_tried() -> None:
    """Each alert has a case in monitoring/alerts_test.yml, in which it fires; ``make alerts`` runs them."""
    text = (RULES.parent / "alerts_test.yml").read_text(encoding="utf-8")
    assert {name for name in ALERTS if name not in text} == set()


def test_prometheus_finds_the_rules() -> None:
    """The configuration names a file that lies where the container mounts it, and the jobs that the rules know."""
    config = yaml.safe_load((ROOT / "prometheus.yml").read_text(encoding="utf-8"))
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert [ROOT / file for file in config["rule_files"]] == [RULES]
    assert (
        f"./{RULES.parent.name}:/etc/prometheus/{RULES.parent.name}:ro" in compose["services"]["prometheus"]["volumes"]
    )
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    asked = {
        value for rule in alerts() for one in selected(rule["expr"]) for label, value in one.matchers if label == "job"
    }
    assert asked <= set(jobs)
    assert {target.partition(":")[0] for targets in jobs.values() for target in targets} <= set(compose["services"])


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    """Ids once each, a place for each panel that no other has, and variables for data source, model and instance."""
    board = dashboard()
    assert {"uid", "title", "schemaVersion", "time", "templating", "panels"} <= set(board)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    taken = [place for panel in board["panels"] for place in _places(**panel["gridPos"])]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    variables = {one["name"]: one["type"] for one in board["templating"]["list"]}
    assert variables == {"source": "datasource", "model": "query", "instance": "query"}
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text(encoding="utf-8"))) - {"__rate_interval", "__all"}
    assert used == set(variables)


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_is_whole(panel: dict[str, Any]) -> None:
    """Kind, title, explanation, unit and source; each of its questions has a letter and a legend of its own."""
    assert panel["type"] in {"timeseries", "stat"}
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    letters = [target["refId"] for target in panel["targets"]]
    assert letters == list(string.ascii_uppercase[: len(letters)])
    assert all(target["legendFormat"] for target in panel["targets"])
    assert all(one["datasource"]["uid"] == "${source}" for one in (panel, *panel["targets"]))


def _places(x: int, y: int, w: int, h: int) -> list[tuple[int, int]]:
    return [(column, line) for column in range(x, x + w) for line in range(y, y + h)]


def _base(name: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", name)


def _errors(root: type[ForescoreError]) -> set[str]:
    return {root.__name__}.union(*(_errors(child) for child in root.__subclasses__()))
