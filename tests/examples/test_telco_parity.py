"""All 7,043 customers, in whatever company they are scored: the same 32 bits."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.examples import EXAMPLES

from batch_job.run import score_batch
from shared.bundle import Bundle
from shared.scorer import Scorer, open_scorer

CUSTOMERS = 7043


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pq.read_table(EXAMPLES / "telco_churn" / "customers.parquet")


@pytest.fixture(scope="module")
def scorer(churn: Bundle) -> Scorer:
    return open_scorer(churn, threads=1)


@pytest.fixture(scope="module")
def together(scorer: Scorer, table: pa.Table) -> np.ndarray:
    """The scores of all customers in one call, as bits."""
    return bits(scorer.score(scorer.encoder.columns(table)))


@pytest.fixture
def restored_threads() -> Iterator[None]:
    """The number of threads belongs to the process: other tests find it as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def bits(scores: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(scores[:, 0]).view(np.uint32)


def chunks(rows: int, size: int) -> Iterator[np.ndarray]:
    for start in range(0, rows, size):
        yield np.arange(start, min(start + size, rows))


def test_every_customer_has_a_score(together: np.ndarray) -> None:
    """No row of the real table breaks a rule: those without total charges are filled."""
    assert together.shape == (CUSTOMERS,)
    assert len(np.unique(together)) > CUSTOMERS // 2


@pytest.mark.timeout(300)
def test_alone_through_the_request_door(scorer: Scorer, table: pa.Table, together: np.ndarray) -> None:
    """A customer who is scored alone, from a request, gets the bits that the batch gave."""
    alone = [scorer.score(scorer.encoder.rows([row])) for row in table.to_pylist()]

    assert np.array_equal(bits(np.concatenate(alone)), together)


def test_in_one_request(scorer: Scorer, table: pa.Table, together: np.ndarray) -> None:
    """All customers as one list of requests get the bits that the columns gave."""
    assert np.array_equal(bits(scorer.score(scorer.encoder.rows(table.to_pylist()))), together)


@pytest.mark.parametrize("size", [100, 1000, 1024])
def test_in_chunks(scorer: Scorer, table: pa.Table, together: np.ndarray, size: int) -> None:
    """The size of the chunk that a customer is read in changes nothing, the last and short one included."""
    parts = [
        scorer.score(scorer.encoder.columns(table.slice(int(picks[0]), len(picks))))
        for picks in chunks(CUSTOMERS, size)
    ]

    assert np.array_equal(bits(np.concatenate(parts)), together)


@pytest.mark.parametrize("tiles", [1, 3])
def test_in_tiles(scorer: Scorer, table: pa.Table, together: np.ndarray, tiles: int) -> None:
    """A customer who is scored in a full tile, or in a few, keeps the same bits."""
    encoded = scorer.encoder.columns(table)
    parts = [scorer.score(encoded.take(picks)) for picks in chunks(CUSTOMERS, tiles * scorer.tile.rows)]

    assert np.array_equal(bits(np.concatenate(parts)), together)


@pytest.mark.parametrize("seed", range(3))
def test_shuffled(scorer: Scorer, table: pa.Table, together: np.ndarray, seed: int) -> None:
    """Neighbours change nothing: in any order, each customer keeps the same bits."""
    order = np.random.default_rng(seed).permutation(CUSTOMERS)

    assert np.array_equal(bits(scorer.score(scorer.encoder.columns(table.take(pa.array(order))))), together[order])


@pytest.mark.parametrize("threads", [1, 2])
def test_with_any_number_of_threads(
    churn: Bundle, table: pa.Table, together: np.ndarray, threads: int, restored_threads: None
) -> None:
    """The number of threads of a forward pass changes nothing."""
    scorer = open_scorer(churn, threads=threads)

    assert np.array_equal(bits(scorer.score(scorer.encoder.columns(table))), together)


def test_in_the_parts_of_a_run(churn: Bundle, table: pa.Table, together: np.ndarray, tmp_path: Path) -> None:
    """What the batch job writes for all customers, in chunks, is what each of them gets alone."""
    run = score_batch(EXAMPLES / "telco_churn" / "customers.parquet", tmp_path / "run", 500, bundle=churn)
    parts = pa.concat_tables([pq.read_table(path) for path in run.part_paths(tmp_path / "run")])

    assert parts["entity_id"].equals(table["customer_id"])
    assert np.array_equal(parts["churn"].to_numpy().view(np.uint32), together)
