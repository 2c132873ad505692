"""The churn example: its table, its split, and the measure of its model."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.examples import EXAMPLES, load_example

TABLE = EXAMPLES / "telco_churn" / "customers.parquet"


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pq.read_table(TABLE)


@pytest.fixture(scope="module")
def train() -> ModuleType:
    return load_example("telco_churn/train.py")


def test_the_table_is_the_one_described(table: pa.Table) -> None:
    """7,043 customers with an id and a label, 19 features, 11 of them without total charges, in a small file."""
    assert table.num_rows == 7043
    assert table.num_columns == 21
    assert table["customer_id"].to_pylist() == [f"C{number:04d}" for number in range(7043)]
    assert table["total_charges"].null_count == 11
    assert TABLE.stat().st_size < 200_000


def test_the_schema_takes_every_feature_and_not_the_label(table: pa.Table, train: ModuleType) -> None:
    """The model sees all 19 features; what it is to foresee is not among them."""
    features = {feature.name for feature in train.SCHEMA.features}

    assert features == set(table.column_names) - {"customer_id", "churn"}


def test_the_unseen_are_not_in_the_nightly_table(table: pa.Table, tmp_path: Path) -> None:
    """Each customer is in one of the two tables, one in ten among the unseen, and neither has the label."""
    prepare = load_example("telco_churn/prepare.py").prepare
    nightly, unseen = (pq.read_table(path) for path in prepare(tmp_path))
    ids = [set(part["customer_id"].to_pylist()) for part in (nightly, unseen)]

    assert not ids[0] & ids[1]
    assert ids[0] | ids[1] == set(table["customer_id"].to_pylist())
    assert 0.08 < len(ids[1]) / table.num_rows < 0.12
    assert "churn" not in {*nightly.column_names, *unseen.column_names}


def test_preparing_again_leaves_the_tables_as_they_are(tmp_path: Path) -> None:
    """The batch job knows a table by its time: the demo's second start finds the same input."""
    prepare = load_example("telco_churn/prepare.py").prepare
    before = [path.stat().st_mtime_ns for path in prepare(tmp_path)]

    assert [path.stat().st_mtime_ns for path in prepare(tmp_path)] == before


def test_auc_counts_pairs(train: ModuleType) -> None:
    """AUC is the share of pairs in the right order; a tie counts half."""
    random = np.random.default_rng(0)
    labels, scores = random.random(60) < 0.3, random.integers(0, 8, 60).astype(np.float32)
    pairs = [(high > low) + (high == low) / 2 for high in scores[labels] for low in scores[~labels]]

    assert train.auc(labels, scores) == pytest.approx(float(np.mean(pairs)))


def test_a_poor_model_is_not_put_into_a_bundle(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the held-out customers are judged too badly, there is nothing to serve."""
    monkeypatch.setattr(train, "auc", lambda *_: 0.8)
    monkeypatch.setattr(train, "train", lambda *_: None)

    with pytest.raises(SystemExit, match=r"below 0\.82"):
        train.bundle()
