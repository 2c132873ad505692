import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs
from support.bundles import entries_of, forge, forge_graph, forge_manifest

from shared.bundle import GOLDEN, GRAPH, Bundle, load_bundle
from shared.certify import golden_digest
from shared.encode import Encoder
from shared.errors import BundleCorrupt, NotCertified
from shared.golden import company
from shared.schema import Numeric, Regression, Schema
from shared.scorer import Scorer, open_scorer
from shared.testing.bundles import PURCHASE_FEATURES, purchase_bundle


def change_golden(bundle: Bundle, name: str, change: object) -> Path:
    """Rewrites one column of the golden rows; every digest fits."""
    table = pq.read_table(io.BytesIO(bundle.read(GOLDEN)))
    place = table.column_names.index(name)
    values = [change(row, value) for row, value in enumerate(table[name].to_pylist())]  # type: ignore[operator]
    table = table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return forge(bundle, GOLDEN, sink.getvalue())


def test_a_bundle_is_certified_where_it_was_built(purchase: Bundle, purchase_scorer: Scorer) -> None:
    """Opening gives the recorded tile and a digest over the golden scores' bits."""
    assert purchase_scorer.tile == purchase.manifest.tile
    assert (purchase_scorer.device, purchase_scorer.engine) == ("cpu", "export")
    assert open_scorer(purchase, device="cpu").golden_digest == purchase_scorer.golden_digest


def test_the_golden_digest_is_over_bits_and_shape() -> None:
    """One other bit, or the same bits in another shape, is another digest."""
    scores = np.arange(6, dtype=np.float32).reshape(3, 2)
    other = scores.copy()
    other[2, 1] = np.nextafter(other[2, 1], np.float32(9))
    digests = {golden_digest(scores), golden_digest(other), golden_digest(scores.reshape(2, 3))}
    assert len(digests) == 3
    assert golden_digest(scores.copy(order="F")) in digests


def test_other_weights_do_not_pass(copied: Bundle) -> None:
    """A2: a graph whose golden scores are others is not served, also when every digest fits."""
    entries = entries_of(copied.read(GRAPH))
    weights = np.frombuffer(entries["data/weights/weight_0"], np.float32) * np.float32(1.01)
    path = forge_graph(copied, {**entries, "data/weights/weight_0": weights.tobytes()})
    with pytest.raises(NotCertified, match="golden rows score otherwise here"):
        open_scorer(load_bundle(path), device="cpu")


def test_another_last_bit_passes(copied: Bundle) -> None:
    """Another host rounds differently: golden scores may differ by rounding, and the digest tells."""
    digest = open_scorer(copied, device="cpu").golden_digest
    entries = entries_of(copied.read(GRAPH))
    weights = np.nextafter(np.frombuffer(entries["data/weights/weight_0"], np.float32), np.float32(9))
    path = forge_graph(copied, {**entries, "data/weights/weight_0": weights.tobytes()})
    assert open_scorer(load_bundle(path), device="cpu").golden_digest != digest


def test_another_encoding_does_not_pass(copied: Bundle) -> None:
    """Golden rows are encoded again, and must give the same tensors, bit for bit."""
    path = change_golden(copied, "visits", lambda row, value: value + 1e-6 if row == 5 else value)
    with pytest.raises(NotCertified, match="encoded otherwise here"):
        open_scorer(load_bundle(path), device="cpu")


def test_golden_rows_that_no_longer_pass_the_rules_are_noticed(copied: Bundle) -> None:
    """A golden row that the encoder rejects here is a difference."""
    path = change_golden(copied, "visits", lambda row, value: None if row == 5 else value)
    with pytest.raises(NotCertified, match="encoded otherwise here"):
        open_scorer(load_bundle(path), device="cpu")


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 100])
def test_golden_rows_that_cannot_be_read_are_refused(copied: Bundle, data: bytes) -> None:
    """golden.parquet of other bytes is refused with a typed error."""
    with pytest.raises(BundleCorrupt, match=r"golden\.parquet"):
        open_scorer(load_bundle(forge(copied, GOLDEN, data)), device="cpu")


def test_golden_rows_without_scores_are_refused(copied: Bundle) -> None:
    """golden.parquet without a column that it must have is refused."""
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(copied.read(GOLDEN))).drop_columns(["forescore:scores"]), sink)
    with pytest.raises(BundleCorrupt, match=r"golden\.parquet"):
        open_scorer(load_bundle(forge(copied, GOLDEN, sink.getvalue())), device="cpu")


def test_a_tile_that_does_not_hold_here_is_replaced(everything: Bundle, tmp_path: Path) -> None:
    """A tile recorded on another host is tried, found not to hold, and replaced with a warning."""
    bundle = purchase_bundle(tmp_path / "out")
    smaller = {"rows": 1, "multiples": False, "most": 1}
    path = forge_manifest(bundle, lambda manifest: manifest.update(tile=smaller))
    with capture_logs() as logs:
        scorer = open_scorer(load_bundle(path), device="cpu")
    assert scorer.tile == bundle.manifest.tile
    assert [(log["event"], log["log_level"]) for log in logs] == [("tile_differs", "warning")]


def test_a_graph_in_training_mode_is_refused_at_load(copied: Bundle) -> None:
    """M2: a graph that was exported in training mode by other means is refused when it is loaded."""
    entries = entries_of(copied.read(GRAPH))
    text = entries["models/model.json"]
    node = text.index(b'"target": "torch.ops.aten.linear.default"')
    name = text.index(b'"inputs"', node)
    extra = b'"inputs": [{"name": "training", "arg": {"as_bool": true}, "kind": 1}, '
    changed = text[:name] + text[name:].replace(b'"inputs": [', extra, 1)
    with pytest.raises(BundleCorrupt, match="training mode"):
        open_scorer(load_bundle(forge_graph(copied, {**entries, "models/model.json": changed})), device="cpu")


def test_company_starts_with_the_golden_rows() -> None:
    """Trial rows are the golden ones, mixtures of them, and, in every other row, numbers between theirs."""
    schema = Schema(features=(Numeric("a"), Numeric("b")), outputs=(Regression("y"),))
    golden = np.array([[1, 10], [2, 20], [3, 30]] * 11, np.float32)
    (rows,) = company(schema, (golden,))
    assert rows.shape == (1024, 2)
    assert (rows[:33] == golden).all()
    mixed, between = rows[33::2], rows[34::2]
    assert (set(mixed[:, 0].tolist()), set(mixed[:, 1].tolist())) == ({1, 2, 3}, {10, 20, 30})
    assert (between >= [1, 10]).all()
    assert (between <= [3, 30]).all()
    assert len(np.unique(between[:, 0])) > 400


def test_what_is_missing_is_missing_in_company() -> None:
    """A column that is missing in a golden row is missing in mixed rows too, and one that always is, always."""
    schema = Schema(features=(Numeric("a"), Numeric("b")), outputs=(Regression("y"),))
    golden = np.array([[1, np.nan], [np.nan, np.nan]] * 16, np.float32)
    (rows,) = company(schema, (golden,))
    assert 300 < np.isnan(rows[:, 0]).sum() < 700
    assert np.isnan(rows[:, 1]).all()


def test_golden_rows_of_whole_numbers_certify_no_luck(tmp_path: Path) -> None:
    """M1: whole numbers add up without rounding, in any order; rows of other numbers score alike all the same."""
    scorer = open_scorer(purchase_bundle(tmp_path / "out", weights=(-0.5, 0.2, 0.1)), device="cpu")
    table = pa.table(dict(zip(PURCHASE_FEATURES, np.random.default_rng(1).uniform(0, 6, (3, 960)), strict=True)))
    encoder = Encoder(scorer.bundle.fitted)
    together = scorer.score(encoder.columns(table))
    for size in (1, 25, 48):
        parts = [scorer.score(encoder.columns(table.slice(start, size))) for start in range(0, 960, size)]
        assert np.concatenate(parts).tobytes() == together.tobytes(), size
