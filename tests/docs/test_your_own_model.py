import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shared.encode import Encoded, Encoder
from shared.fit import fit
from shared.schema import Binary, Boolean, Categorical, Feature, Numeric, Schema

PAGE = (Path(__file__).parents[2] / "docs" / "your-own-model.md").read_text(encoding="utf-8")
TEXTS, INTEGERS = ("a", "7"), (7, 8)
FEATURES: tuple[Feature, ...] = (
    Numeric("x", missing="constant", fill=0.5),
    Boolean("x", missing="indicator"),
    Categorical("x", vocabulary=TEXTS),
    Categorical("x", vocabulary=INTEGERS),
)
SECTION = PAGE.partition("## How a value is read")[2]
ROWS = re.findall(r"^\| `(.+)` \| (.+) \| (.+) \| (.+) \| (.+) \|$", SECTION, re.MULTILINE)
CELLS = [
    pytest.param(FEATURES[column], json.loads(given), cell, id=f"{FEATURES[column].kind}{column}-{given}")
    for given, *cells in ROWS
    for column, cell in enumerate(cells)
]


def reading(feature: Feature, encoded: Encoded) -> str:
    """What became of the one row, in the words of the page's table."""
    if encoded.rejections:
        return encoded.rejections[0].code.text
    if isinstance(feature, Categorical):
        words = [json.dumps(word) for word in feature.vocabulary or ()]
        return [*words, "unseen", "missing"][int(encoded.codes[0, 0])]
    value = float(encoded.numeric[0, 0])
    if math.isnan(value):
        return "missing"
    return str(bool(value)).lower() if isinstance(feature, Boolean) else f"{value:.16g}"


@pytest.mark.parametrize(("feature", "given", "cell"), CELLS)
def test_each_cell_of_the_table_holds_by_both_doors(feature: Feature, given: object, cell: str) -> None:
    """The page's table says how a value is read, from a request and from a column."""
    schema = Schema(features=(feature,), outputs=(Binary("y"),))
    encoder = Encoder(fit(schema))

    assert reading(feature, encoder.rows([{"x": given}])) == cell
    assert reading(feature, encoder.columns(pa.table({"x": pa.array([given])}))) == cell


def test_the_table_was_found_whole() -> None:
    """Every row of the table is tested: each kind of JSON value is among them."""
    kinds = {type(json.loads(given)) for given, *_ in ROWS}

    assert kinds == {type(None), float, str, int, bool, list, dict}
    assert len(ROWS) == SECTION.count("\n| `")


def test_numbers_of_the_table_survive_float32() -> None:
    """The page prints float32 values, so none may be one that float32 rounds."""
    numbers = [float(cells[0]) for _, *cells in ROWS if re.fullmatch(r"[0-9.]+", cells[0])]

    assert numbers
    assert all(float(np.float32(number)) == number for number in numbers)
