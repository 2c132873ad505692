import pytest
from support.tables import TABLES, written

from shared import errors
from shared.errors import ForescoreError


@pytest.mark.parametrize("page", list(TABLES))
def test_the_docs_say_what_the_code_does(page: str) -> None:
    """Settings, errors, metrics and commands are in the docs as they are in the code; ``make docs`` writes them."""
    assert written(page).splitlines() == TABLES[page]().splitlines()


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    """The picture at the head of shared/errors.py has every class, once, below its parent."""
    drawn = [line.rpartition("─ ")[2].split()[0] for line in (errors.__doc__ or "").splitlines() if "─ " in line]
    assert drawn == [error.__name__ for error in _tree(ForescoreError)]


def _tree(error: type[ForescoreError]) -> list[type[ForescoreError]]:
    children = [child for child in error.__subclasses__() if child.__module__ == errors.__name__]
    return [found for child in children for found in (child, *_tree(child))]
