import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| [A-M]\d", line)]


def test_each_fault_is_held_by_tests_that_exist() -> None:
    """No row without a test, and no test that was renamed away."""
    for row in ROWS:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for file, test in named:
            assert test in _functions(ROOT / file), f"{file} has no {test}"


def test_each_fault_stands_once() -> None:
    """A fault that is told twice is two promises."""
    told = [name for row in ROWS for name in re.findall(r"[A-M]\d+", row.split("|")[1])]
    assert len(told) == len(set(told)) >= 70


def _functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
