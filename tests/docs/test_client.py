import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import fields
from pathlib import Path

import pytest
from support.clients import ROWS, live_service
from support.servers import ValkeyProcess

from shared.client.attempts import ClientPolicy
from shared.client.problems import ForescoreProblem
from shared.scorer import open_scorer
from shared.testing.bundles import purchase_bundle

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
BUILT_IN = ("LookupError", "ValueError", "TimeoutError", "ConnectionError")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("client")
    scorer = open_scorer(purchase_bundle(folder / "bundle"), device="cpu")
    with live_service(folder, valkey, scorer, ROWS) as url:
        yield url


def test_the_examples_print_what_the_page_says(url: str) -> None:
    """Each block runs as it stands, after those before it, and prints the text below it."""
    namespace: dict[str, object] = {}
    for code, printed in EXAMPLES:
        output = io.StringIO()
        with redirect_stdout(output):
            exec(code.replace("http://localhost:8000", url), namespace)  # noqa: S102 - the project's own page
        assert output.getvalue() == printed


def test_every_block_is_run() -> None:
    """No example is without its text, so none is left out."""
    assert len(EXAMPLES) == PAGE.count("```python") == PAGE.count("```text") >= 6


def test_every_error_is_in_the_table() -> None:
    """The page has every class of the client's errors, with the built-in error that it also is."""
    rows = re.findall(
        r"^\| `(\w+)` \| .* \|(?: `(\w+)`)? \|$", PAGE.partition("## When there is no answer")[2], re.MULTILINE
    )
    told = dict(rows[: len(ForescoreProblem.__subclasses__()) + 1])

    assert told == {
        error.__name__: next((base.__name__ for base in error.__mro__ if base.__name__ in BUILT_IN), "")
        for error in (ForescoreProblem, *ForescoreProblem.__subclasses__())
    }


def test_the_policys_defaults_are_in_the_table() -> None:
    """The page has every field of the policy, with the default that it has."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| .+ \|$", PAGE, re.MULTILINE)

    assert rows == [(one.name, str(one.default)) for one in fields(ClientPolicy)]
