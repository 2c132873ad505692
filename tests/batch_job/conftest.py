"""The purchase model, opened once, and its four customers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command import Command
from support.servers import ValkeyProcess

from batch_job.job import Means
from batch_job.manifest import RunManifest, RunState
from shared.bundle import Bundle
from shared.schema import Binary
from shared.scorer import Scorer, open_scorer
from shared.settings import Settings
from shared.testing.bundles import purchase_bundle
from shared.testing.clock import FrozenClock

Columns = Mapping[str, Sequence[object]]
Write = Callable[..., Path]


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return purchase_bundle(tmp_path_factory.mktemp("bundles") / "purchase")


@pytest.fixture(scope="session")
def other_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Version 2, with other weights."""
    return purchase_bundle(tmp_path_factory.mktemp("bundles") / "other", version="2", weights=(0.5, 0.1, -0.3))


@pytest.fixture(scope="session")
def scorer(bundle: Bundle) -> Scorer:
    return open_scorer(bundle, device="cpu")


@pytest.fixture
def means(scorer: Scorer, tmp_path: Path) -> Means:
    """Means with the opened scorer, a clock that stands still, and known randomness."""
    return Means(
        settings=Settings(home=tmp_path / "home"),
        clock=FrozenClock(),
        entropy=bytes,
        open_scores=lambda: scorer,
    )


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a table of customers: the four of the purchase model, unless columns are given."""

    def write_table(name: str = "customers.parquet", **columns: Sequence[object]) -> Path:
        four: dict[str, Sequence[object]] = {
            "customer_id": [0, 1, 2, 3],
            "visits": [1, 0, 2, 1],
            "returns": [0, 3, 1, 1],
            "basket": [2, 1, 0, 1],
        }
        table = pa.table({**four, **columns})
        path = tmp_path / name
        if path.suffix == ".csv":
            lines = [",".join("" if v is None else str(v) for v in row.values()) for row in table.to_pylist()]
            path.write_text("\n".join([",".join(table.column_names), *lines]) + "\n", encoding="utf-8")
        else:
            pq.write_table(table, path)
        return path

    return write_table


@pytest.fixture
def manifest() -> RunManifest:
    """The manifest of a run that has just begun."""
    return RunManifest(
        state=RunState.SCORING,
        run_key="k",
        snapshot="1-A",
        started_at=0,
        created_by="test",
        forescore_version="0",
        model="purchase",
        model_version="1",
        bundle_digest="b",
        code_revision=None,
        schema_fingerprint="s",
        outputs=(Binary("buys"),),
        fields=("visits",),
        input_path="t.parquet",
        input_fingerprint="i",
        input_files=1,
        output_path="out",
        data_as_of=None,
        chunk_size=100,
        partition=None,
        where=None,
        limit=None,
        entities=None,
        order_by=None,
        duplicates="refuse",
    )


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    valkey: ValkeyProcess,
    namespace: str,
) -> Command:
    """The command with a home and a corner of a real store of its own."""
    monkeypatch.setenv("FORESCORE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FORESCORE_REDIS__URL", valkey.url)
    monkeypatch.setenv("FORESCORE_REDIS__NAMESPACE", namespace)
    monkeypatch.setenv("FORESCORE_GATES__LEASE_SECONDS", "1")
    return Command(capsys)
