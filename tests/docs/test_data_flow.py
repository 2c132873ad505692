import re
from pathlib import Path

from service.rates import RATE_PER_KEY, Policy
from shared.codes import Code
from shared.layout import Keys, models_key, rates_key

PAGE = (Path(__file__).parents[2] / "docs" / "data-flow.md").read_text(encoding="utf-8")


def first_cells(section: str) -> list[str]:
    """The code words in the first column of the table of a section."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    return [word for row in rows for word in re.findall(r"`(.+?)`", row)]


def test_the_page_lists_every_key() -> None:
    """The keys of the page are those that the code makes."""
    keys = Keys("fs", "churn")
    control = (keys.active(), keys.epoch(), keys.lease(), keys.history(), keys.snapshots(), keys.states())
    counted = Policy(reason=RATE_PER_KEY, label="key", rows=500, seconds=1).key("app")
    spread = [keys.bucket("SNAPSHOT", 17), keys.features("C0042"), f"{rates_key('fs')}:{{{counted}}}"]

    assert first_cells("Keys") == [models_key("fs"), *control, keys.versions(), *spread]


def test_the_page_lists_every_code() -> None:
    """Each reason for a rejection is explained once."""
    assert sorted(first_cells("A run and its files")) == sorted(code.text for code in Code)
