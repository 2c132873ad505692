import json
import re
from pathlib import Path

import pytest

from shared.codes import Code
from shared.ids import MAX_ID_BYTES, id_text

PAGE = Path(__file__).parents[2] / "docs" / "entity-ids.md"
VECTORS = re.findall(r"^\| `(.+)` \| `(.+)` \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize(("given", "result"), VECTORS)
def test_each_vector_of_the_page_holds(given: str, result: str) -> None:
    """The page's table says what the code does."""
    expected = json.loads(result) if result.startswith('"') else Code.of(result)

    assert id_text(json.loads(given)) == expected


def test_the_page_has_vectors_of_every_kind() -> None:
    """The table was read: ids, null ids and invalid ids are all in it."""
    results = {result if not result.startswith('"') else "id" for _, result in VECTORS}

    assert results == {"id", "null_id", "invalid_id"}
    assert len(VECTORS) >= 30


def test_the_limit_counts_bytes_as_the_page_says() -> None:
    """256 bytes are an id, 257 are not, and two-byte letters count twice."""
    assert MAX_ID_BYTES == 256
    assert id_text("é" * 128) == "é" * 128
    assert id_text("é" * 128 + "a") == Code.INVALID_ID
