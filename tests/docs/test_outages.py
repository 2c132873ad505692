"""docs/outages.md says what the code does."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry
from support.tables import DOCS

from service.answers import SNAPSHOT_FILE
from shared.metrics import Metrics
from shared.settings import Settings
from shared.snapshot_file_layout import FILE, NEXT
from shared.snapshot_file_record import record_path

PAGE = (DOCS / "outages.md").read_text(encoding="utf-8")


def test_its_names_are_those_of_the_code() -> None:
    """Files, the record, settings and metrics are called as they are."""
    registry = CollectorRegistry()
    Metrics(registry)
    metrics = {name for collector in registry._collector_to_names.values() for name in collector}
    assert set(re.findall(r"forescore_[a-z_]+", PAGE)) <= metrics
    for name in (FILE, NEXT, record_path(Path(), "MODEL").name, f"detail={SNAPSHOT_FILE}"):
        assert name in PAGE
    known = {f"FORESCORE_{field}".upper() for field in Settings.model_fields}
    assert {name.partition("__")[0] for name in re.findall(r"FORESCORE_[A-Z_]+", PAGE)} <= known


def test_it_is_found() -> None:
    """The first page and the operator's lead to it."""
    assert "(docs/outages.md)" in (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert "(outages.md)" in (DOCS / "operations.md").read_text(encoding="utf-8")
