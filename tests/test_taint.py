"""L3: a marked feature value, in numbers, texts and tensors and by every door, shows up nowhere but where it must."""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from starlette.testclient import TestClient
from support.command import Command
from support.doubles import DIES, HANGS, RAISES, misbehaving
from support.publish import publish
from support.services import service_settings, serving

from batch_job.job import Means, open_job
from batch_job.run import run_job
from shared.bundle import Bundle
from shared.encode import Encoded
from shared.scorer import Scorer, open_scorer
from shared.settings import BatchSettings, Settings
from shared.telemetry import configure_logging
from shared.testing.bundles import every_feature_bundle, every_feature_table, purchase_bundle
from shared.testing.store import MemoryStore

TEXT = "T4INT"
NUMBER = 918273.5
MARKS = (TEXT, "918273")
ROW: dict[str, Any] = {
    "age": 40,
    "amount": 12.5,
    "contract": "month",
    "region": 1,
    "member": True,
    "embedding": [0.1, 0.2, 0.3, 0.4],
    "tokens": [1, 2, 3, 4, 5, 6],
    "mask": [True, True, True, False, False, False],
}
TAINTED: dict[str, dict[str, Any]] = {
    "number": {"age": NUMBER},
    "text in a number": {"age": TEXT},
    "number as text": {"age": str(NUMBER)},
    "unseen text": {"contract": TEXT},
    "number in a text": {"contract": NUMBER},
    "unseen number": {"region": 918273},
    "text in a boolean": {"member": TEXT},
    "number in a boolean": {"member": NUMBER},
    "tensor": {"embedding": [NUMBER, 0, 0, 0]},
    "text in a tensor": {"embedding": [TEXT, 0, 0, 0]},
    "tensor too long": {"embedding": [NUMBER] * 5},
    "tensor that is none": {"embedding": TEXT},
    "token out of range": {"tokens": [918273, 0, 0, 0, 0, 0]},
    "list in a number": {"age": [NUMBER, TEXT]},
    "object in a number": {"age": {TEXT: NUMBER}},
}
"""What is fine, what breaks a rule, and what is of another kind altogether."""


class Fatal:
    """A scorer whose pass raises an error that tells the value, whenever it sees the marked number."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    def score(self, encoded: Encoded) -> Any:
        if (encoded.numeric == NUMBER).any():
            raise ValueError(f"{TEXT} {NUMBER}")
        return self._scorer.score(encoded)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return every_feature_bundle(tmp_path_factory.mktemp("taint") / "bundle")


@pytest.fixture(scope="module")
def scorer(bundle: Bundle) -> Scorer:
    return open_scorer(bundle, device="cpu")


@pytest.fixture(scope="module")
def bundle_of_purchases(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return purchase_bundle(tmp_path_factory.mktemp("taint") / "purchase")


@pytest.fixture
def log() -> io.StringIO:
    """What this process logs at the lowest level."""
    stream = io.StringIO()
    configure_logging(Settings(log_format="json", log_level="debug"), stream)
    return stream


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, valkey: Any, namespace: str
) -> Command:
    monkeypatch.setenv("FORESCORE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FORESCORE_REDIS__URL", valkey.url)
    monkeypatch.setenv("FORESCORE_REDIS__NAMESPACE", namespace)
    monkeypatch.setenv("FORESCORE_LOG_LEVEL", "debug")
    return Command(capsys)


@pytest.fixture(params=["fine", "fatal"])
def client(request: pytest.FixtureRequest, scorer: Scorer, log: io.StringIO) -> Iterator[TestClient]:
    """A service whose model works, or fails for the marked number with an error that tells it."""
    memory = MemoryStore("everything")
    publish(memory.store, scorer, {"known": ROW, "rejected": {**ROW, "region": 918273}})
    used: Any = scorer if request.param == "fine" else Fatal(scorer)
    with serving(used, memory, service_settings(scorer)) as opened:
        yield opened


@pytest.mark.parametrize("name", list(TAINTED))
def test_no_answer_metric_or_line_tells_it(client: TestClient, log: io.StringIO, name: str) -> None:
    """Kept by PUT and read by GET, posted alone and in company, fine, refused or fatal."""
    row = {**ROW, **TAINTED[name]}
    item = {"entity_id": "posted", "features": row}
    answers = [
        client.put("/features/kept", json={"features": row}),
        client.get("/score/kept"),
        client.post("/score", json={"items": [item]}),
        client.post("/score", json={"items": [{"entity_id": "known"}, item, {"features": row}, {"entity_id": "kept"}]}),
        client.get("/score/kept", headers={"cache-control": "no-cache"}),
        client.delete("/features/kept"),
        client.get("/score/rejected"),
        client.get("/model"),
        client.get("/metrics"),
        client.get("/readyz?verbose"),
    ]
    _assert_clean("\n".join(f"{answer.headers}{answer.text}" for answer in answers))
    _assert_clean(log.getvalue())
    assert log.getvalue().count('"event":"request"') >= 7


@pytest.mark.parametrize(
    "body",
    [
        f'{{"items": [{{"features": {{"age": {TEXT}}}}}]}}',
        f'{{"items": [{{"features": "{TEXT}"}}]}}',
        f'{{"items": "{TEXT}"}}',
        f'{{"{TEXT}": 1}}',
        f'"{TEXT}"',
        '{"items": [{"features": {"age": 918273e999}}]}',
        f'{{"features": {{"age": "{TEXT}", "age": {NUMBER}}}',
        f'{{"items": [{{"entity_id": {{"age": "{TEXT}"}}}}]}}',
        f"{TEXT}\x00",
    ],
)
def test_a_broken_body_is_not_quoted(client: TestClient, log: io.StringIO, body: str) -> None:
    """What cannot be read is refused by its place and its rule."""
    for answer in (client.post("/score", content=body), client.put("/features/kept", content=body)):
        assert answer.status_code < 500
        _assert_clean(answer.text)
    _assert_clean(log.getvalue())


def test_no_run_report_part_or_command_tells_it(command: Command, bundle: Bundle, tmp_path: Path) -> None:
    """A table of marked rows, most of them rejected: what the commands print and leave behind is clean."""
    table = _table(tmp_path / "table.parquet", TAINTED)
    told = ""
    for arguments in (
        ("backfill", bundle.path, table, "--dry-run"),
        ("backfill", bundle.path, table, "--json"),
        ("features", "load", bundle.path, table),
        ("snapshots",),
        ("snapshots", "--json"),
        *(("get", f"E{place:05d}") for place in range(len(TAINTED))),
    ):
        command(*arguments)
        told += f"{command.out}{command.err}\n"
    _assert_clean(told)
    assert told.count("\n") > 20
    written = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert any(path.suffix == ".parquet" for path in written)
    for path in written:
        _assert_clean(_content(path))


def test_neither_the_snapshots_file_nor_the_doctor_tells_it(command: Command, bundle: Bundle, tmp_path: Path) -> None:
    """A published snapshot of marked rows, those that are scored and those that are not: its file is clean, and what
    the doctor finds in all that there is of it."""
    table = _table(tmp_path / "table.parquet", TAINTED)
    assert command("backfill", bundle.path, table, "--max-rejected", "100%", "--json") == 0, command.err
    counts = command.json()["counts"]
    assert isinstance(counts, dict)
    assert min(counts["scored"], counts["rejected"]) >= 1
    [file] = (tmp_path / "home").rglob("snapshot.arrow")
    _assert_clean(_content(file))
    for options in ((), ("--json",), ("--strict",)):
        command("doctor", bundle.path, *options)
        assert "active snapshot" in command.out
        _assert_clean(command.out + command.err)


def test_no_row_that_ends_in_the_quarantine_is_told_of(
    bundle_of_purchases: Bundle, log: io.StringIO, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Native code that says a row's values and then hangs, dies or fails: they are in no line, output or file."""
    rows = {"customer_id": list("abcd"), "visits": [1, HANGS, DIES, RAISES], "returns": [0] * 4, "basket": [1] * 4}
    pq.write_table(pa.table(rows), tmp_path / "table.parquet")
    settings = Settings(home=tmp_path / "home", batch=BatchSettings(chunk_timeout_seconds=1))
    means = Means(settings=settings, open_scores=misbehaving(f"{TEXT} {NUMBER}"))
    job = open_job(tmp_path / "table.parquet", bundle=bundle_of_purchases, chunk_size=10)
    manifest = run_job(job, tmp_path / "out", means)
    assert (manifest.counts.scored, manifest.counts.rejected) == (1, 3)
    told = capfd.readouterr()
    _assert_clean(told.out + told.err + log.getvalue())
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            _assert_clean(_content(path))


@pytest.mark.parametrize("name", ["wrong type", "duplicates", "csv"])
def test_no_error_of_a_run_tells_it(command: Command, bundle: Bundle, tmp_path: Path, name: str) -> None:
    """A column of a type that is refused, one id twice, a line that is torn."""
    rows = {"a": {"age": TEXT}, "b": {"age": str(NUMBER)}}
    table = _table(tmp_path / "table.parquet", rows, twice=name == "duplicates", dates=name == "wrong type")
    if name == "csv":
        table = tmp_path / "table.csv"
        table.write_text(f'{",".join(["id", *ROW])}\n1,{TEXT},"{NUMBER}\n', encoding="utf-8")
    assert command("backfill", bundle.path, table) != 0
    assert command.err
    _assert_clean(command.out + command.err)


def _table(path: Path, rows: Mapping[str, dict[str, Any]], *, twice: bool = False, dates: bool = False) -> Path:
    """The rows as a table: each column as texts where a marked value is no number, as far as Parquet can say it."""
    whole = [{**ROW, **row} for row in rows.values()]
    few = every_feature_table(len(whole))
    columns = {"id": few["id"] if not twice else pa.array(["E00000"] * len(whole))}
    for name, plain in ROW.items():
        if isinstance(plain, list):
            lists = [[_number(part) for part in one[name]] if isinstance(one[name], list) else None for one in whole]
            columns[name] = pa.array(lists)
        else:
            columns[name] = pa.array([str(one[name]) for one in whole])
    if dates:
        columns["age"] = pa.array([918273] * len(whole), pa.timestamp("s"))
    pq.write_table(pa.table(columns), path)
    return path


def _number(part: object) -> object:
    return 918273 if isinstance(part, str) else part


def _content(path: Path) -> str:
    """What is in the file, for somebody who reads it and for somebody who looks at its bytes."""
    readers = {".parquet": pq.read_table, ".arrow": feather.read_table}
    rows = json.dumps(readers[path.suffix](path).to_pylist(), default=str) if path.suffix in readers else ""
    return rows + path.read_bytes().decode("latin-1")


def _assert_clean(text: str) -> None:
    for mark in MARKS:
        place = text.find(mark)
        assert place < 0, f"...{text[max(0, place - 200) : place + 80]}..."
