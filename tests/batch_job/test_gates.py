"""What a run and its snapshot must show."""

import math

import numpy as np
import pyarrow as pa
import pytest
from support.snapshots import snapshot_meta

from batch_job.counts import Counts, RejectionCount
from batch_job.gates import RejectionLimit, gates, histograms_of, noise, psi
from batch_job.histograms import decile_edges, histograms
from batch_job.parts import part_schema
from shared.errors import SettingsError, TooManyRejected
from shared.settings import GateSettings
from shared.snapshot import Histogram, SnapshotMeta


@pytest.mark.parametrize(
    ("text", "rows"), [("10%", 100), ("0.25%", 2), ("0", 0), ("7", 7), ("29%", 290), ("100%", 1000)]
)
def test_a_limit_is_a_share_or_a_count(text: str, rows: int) -> None:
    """Shares are of the input rows, and exact."""
    assert RejectionLimit(text).rows(1000) == rows


@pytest.mark.parametrize("text", ["", "-1", "1.5", "ten", "10 %"])
def test_another_limit_is_refused(text: str) -> None:
    """What is neither a share nor a count is a mistake."""
    with pytest.raises(SettingsError, match="--max-rejected"):
        RejectionLimit(text)


def test_too_many_rejected_rows_are_told_by_code_and_field() -> None:
    """The error says how many, why, and what to do."""
    reasons = (RejectionCount(code="missing", field="x", rows=2), RejectionCount(code="null_id", field="id", rows=1))
    counts = Counts(input=9, scored=6, rejected=3, rejections=reasons)
    RejectionLimit("3").require(counts, 9)
    with pytest.raises(TooManyRejected, match=r"3 of 9 rows rejected, .* 2: 2 missing in x; 1 null_id in id; mend"):
        RejectionLimit("2").require(counts, 9)


def test_psi_by_hand() -> None:
    """(0.5-0.4) ln(0.5/0.4) + (0.5-0.6) ln(0.5/0.6) = 0.0405."""
    expected = 0.1 * math.log(0.5 / 0.4) - 0.1 * math.log(0.5 / 0.6)
    assert psi((400, 600), (50, 50)) == pytest.approx(expected)
    assert psi((400, 600), (4, 6)) == pytest.approx(0)


def test_an_empty_part_does_not_break_the_index() -> None:
    """A part where nothing lies counts as one in ten thousand."""
    assert psi((50, 50), (100, 0)) == pytest.approx(0.5 * math.log(2) + (1e-4 - 0.5) * math.log(1e-4 / 0.5))


def test_chance_makes_much_of_few_scores() -> None:
    """Two samples of one distribution exceed the noise about once in a thousand times."""
    random = np.random.default_rng(1)
    edges = tuple(np.arange(1, 10) / 10)
    beyond = sum(
        psi(*(np.histogram(random.random(60), [0, *edges, 1])[0].tolist() for _ in range(2))) > noise(10, 60, 60)
        for _ in range(300)
    )
    assert beyond <= 12  # the floor of empty parts adds to the noise of so few


def meta(scored: int, counts: tuple[int, ...] = (500, 500)) -> SnapshotMeta:
    histogram = Histogram(edges=(0.5,), counts=counts)
    return snapshot_meta("1-A", scored=scored).model_copy(update={"histograms": (histogram,)})


def test_the_first_snapshot_has_nothing_to_be_compared_with() -> None:
    """No active snapshot: no gate."""
    assert gates(meta(10), None, {}, GateSettings()) == []


@pytest.mark.parametrize(("scored", "passed"), [(900, True), (899, False), (2000, True)])
def test_the_gate_of_coverage(scored: int, *, passed: bool) -> None:
    """A snapshot with fewer scores than nine tenths of the active one's is held."""
    gate = gates(meta(scored), meta(1000), {}, GateSettings())[0]
    assert (gate.name, gate.passed) == ("coverage", passed)
    assert str(scored) in gate.numbers


@pytest.mark.parametrize(("counts", "passed"), [((500, 500), True), ((600, 400), True), ((900, 100), False)])
def test_the_gate_of_the_shift(counts: tuple[int, int], *, passed: bool) -> None:
    """A distribution that moved by more than the limit is held."""
    active = meta(1000)
    column = active.columns[0]
    counted = {column: Histogram(edges=(0.5,), counts=counts)}
    gate = gates(meta(1000), active, counted, GateSettings())[1]
    assert (gate.name, gate.passed) == (f"shift of {column}", passed)


def part(scores: list[float | None]) -> pa.Table:
    rows = len(scores)
    texts = [pa.nulls(rows, pa.string())] * 4
    return pa.table(
        [texts[0], pa.array(range(rows), pa.int64()), *texts, pa.array(scores, pa.float32())],
        schema=part_schema(["s"]),
    )


def test_deciles_cut_the_scores_into_ten_parts() -> None:
    """A hundred scores in several parts, some rows without: ten in each tenth."""
    values = np.linspace(0, 1, 100, dtype=np.float32).tolist()
    parts = [part([*values[:37], None]), part([None]), part(values[37:])]
    edges = decile_edges(parts, ["s"], 100)
    counts = histograms(parts, ["s"], edges)["s"].counts
    assert sum(counts) == 100
    assert len(counts) == 10
    assert max(counts) - min(counts) <= 2


def test_the_sample_is_the_same_however_the_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every n-th score counts, wherever one part ends and the next begins."""
    monkeypatch.setattr("batch_job.histograms._SAMPLE_ROWS", 10)
    values = np.random.default_rng(0).random(101).astype(np.float32).tolist()
    once = decile_edges([part(values)], ["s"], 101)
    assert decile_edges([part(values[:3]), part(values[3:50]), part(values[50:])], ["s"], 101) == once


def test_few_distinct_scores_have_few_edges() -> None:
    """Values that repeat give one edge, and no scores give none."""
    assert decile_edges([part([0.5] * 20)], ["s"], 20) == {"s": (0.5,)}
    assert decile_edges([part([None])], ["s"], 0) == {"s": ()}
    assert histograms([part([0.5, 0.25])], ["s"], {"s": (0.5,)})["s"].counts == (1, 1)


def test_a_column_without_scores_is_not_compared() -> None:
    """A histogram that counts nothing says nothing about a shift."""
    assert histograms_of(meta(10, (0, 0))) == {}
