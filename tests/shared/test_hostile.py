"""Bundles whose every digest is right, made to take the memory, the time or the trust of whoever loads them."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.bundles import Entries, archive_of, entries_of, forge, forge_manifest, with_json

from shared import archive
from shared.bundle import FILES, GOLDEN, GRAPH, MANIFEST, MAX_FILE_BYTES, Bundle, load_bundle
from shared.errors import BundleCorrupt, ForescoreError
from shared.golden import MOST_ROWS
from shared.scorer import open_scorer


def opened(path: Path) -> None:
    open_scorer(load_bundle(path), device="cpu")


@pytest.fixture
def entries(purchase: Bundle) -> Entries:
    return entries_of(purchase.read(GRAPH))


@pytest.mark.parametrize("file", [*FILES, MANIFEST])
def test_a_second_name_is_refused(copied: Bundle, tmp_path: Path, file: str) -> None:
    """A hard link leads out as a symbolic one does: whoever has the other name changes the file."""
    os.link(copied.path / file, tmp_path / "elsewhere")
    with pytest.raises(BundleCorrupt, match="hard link"):
        load_bundle(copied.path)


@pytest.mark.parametrize("file", [*FILES, MANIFEST])
def test_a_pipe_or_a_folder_is_no_file(copied: Bundle, file: str) -> None:
    """Neither holds the process: each is refused at once, in place of whichever file it is."""
    for make in (os.mkfifo, os.mkdir):
        path = copied.path / file
        path.unlink(missing_ok=True)
        make(path)
        with pytest.raises(BundleCorrupt, match="not a regular file"):
            load_bundle(copied.path)
        path.rmdir() if path.is_dir() else path.unlink()


def manifest_text(bundle: Bundle, old: str, new: str) -> Path:
    text = (bundle.path / MANIFEST).read_text(encoding="utf-8")
    assert old in text
    (bundle.path / MANIFEST).write_bytes(text.replace(old, new, 1).encode(errors="surrogatepass"))
    return bundle.path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name": "purchase"', '"name": "purchase", "name": "other"'),
        ('"name": "purchase"', '"name": "other", "n\\u0061me": "purchase"'),
        ('"bytes":', '"bytes": 1, "bytes":'),
        ('"engine": "export"', '"engine": "\ud800"'),
        ('"engine": "export"', '"engine": "\\ud800"'),
        ('"name": "purchase"', '"name": "purch\u0430se"'),
        ('"name": "purchase"', '"name": "purchase\\u0000"'),
        ('"name": "purchase"', '"name": "purchase\\u202e"'),
        ('"version": "1"', '"version": "\uff11"'),
        ('"graph.pt2":', '"../graph.pt2":'),
        ('"graph.pt2":', '"/etc/passwd":'),
        ('"graph.pt2":', '"graph\uff0ept2":'),
        ('"golden_rows": ', '"golden_rows": NaN, "x": '),
        ("{", "{" + '"a":[' * 5_000),
    ],
)
def test_a_manifest_of_two_meanings_is_refused(copied: Bundle, old: str, new: str) -> None:
    """A key twice, a text that is none, a letter that looks like another, a path: each is refused by name."""
    with pytest.raises(BundleCorrupt, match=r"bundle\.json"):
        load_bundle(manifest_text(copied, old, new))


def test_a_file_of_any_size_may_not_be_declared(copied: Bundle) -> None:
    """The size that is read is the one declared, so it is bounded."""
    with pytest.raises(BundleCorrupt, match=r"files\.graph\.pt2\.bytes"):
        load_bundle(forge_manifest(copied, lambda manifest: manifest["files"][GRAPH].update(bytes=MAX_FILE_BYTES + 1)))


@pytest.mark.parametrize(("tensors", "shape"), [(1, [10**9, 10**9]), (9, [4 * 1024 * 1024]), (1, [1] * 200_000)])
def test_a_row_of_any_size_may_not_be_declared(copied: Bundle, tensors: int, shape: list[int]) -> None:
    """What one row takes is bounded before a tensor is made of it, for one tensor and for all together."""

    def change(manifest: Any) -> None:
        for place in range(tensors):
            tensor = {"kind": "tensor", "name": f"t{place}", "shape": shape, "dtype": "float32", "missing": "zeros"}
            manifest["fitted"]["schema"]["features"].append(tensor)
            manifest["inputs"].append({"name": f"t{place}", "shape": shape, "dtype": "float32"})

    with pytest.raises(BundleCorrupt):
        opened(forge_manifest(copied, change))


def golden(bundle: Bundle, change: Callable[[pa.Table], pa.Table]) -> Path:
    sink = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(bundle.read(GOLDEN)))), sink)
    return forge(bundle, GOLDEN, sink.getvalue())


def replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def scores_of(kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    return lambda table: replaced(table, "forescore:scores", pa.array([[None]] * len(table), pa.list_(kind, 1)))


def many_values_a_row(table: pa.Table) -> pa.Table:
    lists = pa.ListArray.from_arrays([0] + [2**16] * len(table), np.zeros(2**16, np.float32))
    return replaced(table, "forescore:scores", lists)


GOLDEN_BOMBS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no rows": lambda table: table.slice(0, 0),
    "a row too many": lambda table: pa.concat_tables([table] * 20).slice(0, MOST_ROWS + 1),
    "many rows of nothing": lambda table: pa.concat_tables([table] * 1_000).combine_chunks(),
    "a column too many": lambda table: table.append_column("x", pa.array([0] * len(table))),
    "a column too few": lambda table: table.drop_columns(["visits"]),
    "a column twice": lambda table: table.append_column("visits", table["visits"]),
    "more values than a row has": many_values_a_row,
    "scores within scores": lambda table: replaced(table, "forescore:scores", pa.array([{"a": 1.0}] * len(table))),
    "scores of text": scores_of(pa.string()),
    "scores of double": scores_of(pa.float64()),
    "scores of nothing": scores_of(pa.float32()),
    "features of text": lambda table: replaced(table, "visits", pa.array(["x"] * len(table))),
    "features of lists": lambda table: replaced(table, "visits", pa.array([[1.0]] * len(table))),
}


@pytest.mark.parametrize("change", GOLDEN_BOMBS.values(), ids=GOLDEN_BOMBS.keys())
def test_golden_rows_of_another_form_are_refused(copied: Bundle, change: Callable[[pa.Table], pa.Table]) -> None:
    """A few kilobytes of Parquet that unpack to much, or to what scores cannot be, end in an error of ours."""
    with pytest.raises(ForescoreError):
        opened(golden(copied, change))


def test_a_golden_file_that_is_no_parquet(copied: Bundle) -> None:
    """Bytes with the marks of Parquet and nothing between them are refused with the same error."""
    for data in (b"", b"PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1"):
        with pytest.raises(BundleCorrupt, match=r"golden\.parquet"):
            opened(forge(copied, GOLDEN, data))


def test_a_golden_file_whose_footer_cannot_be(copied: Bundle) -> None:
    """What would end the process is refused with the same error."""
    data = copied.read(GOLDEN)
    assert b"\x25\x02\x18\x06visits" in data
    with pytest.raises(BundleCorrupt, match=r"golden\.parquet"):
        opened(forge(copied, GOLDEN, data.replace(b"\x25\x02\x18\x06visits", b"\x25\x00\x18\x06visits")))


def nested_in_place(entries: Entries, depth: int) -> Entries:
    """JSON that the parser still takes, where only a walk through it goes too deep."""
    model = json.loads(entries[archive.MODEL])
    model["graph_module"]["graph"]["nodes"][0]["x"] = "deep"
    deep = "[" * (depth + 1) + "]" * (depth + 1)
    return {**entries, archive.MODEL: json.dumps(model).replace('"deep"', deep).encode()}


@pytest.mark.parametrize("depth", [100, 400, 800, 900, 950])
def test_a_graph_of_any_depth_is_refused_or_taken(entries: Entries, depth: int) -> None:
    """However deep its JSON is, the check ends with an answer and no other exception."""
    try:
        archive.check(archive_of(nested_in_place(entries, depth)))
    except BundleCorrupt:
        assert depth > 100


@pytest.mark.parametrize("name", [archive.MODEL, archive.WEIGHTS, archive.CONSTANTS])
def test_a_key_twice_in_the_graph_is_refused(entries: Entries, name: str) -> None:
    """Two readers of such a JSON could read two graphs."""
    first, rest = entries[name][:1], entries[name][1:]
    twice = first + b'"config": {}, "config": {}, ' + rest
    with pytest.raises(BundleCorrupt, match="says one thing twice"):
        archive.check(archive_of({**entries, name: twice}))


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("full.default", {"size": {"as_ints": [2**20, 2**20]}, "fill_value": {"as_float": 0.0}}),
        ("expand.default", {"size": {"as_sym_ints": [{"as_name": "s0"}, {"as_int": 2**40}]}}),
        ("repeat.default", {"repeats": {"as_ints": [2**15, 2**15]}}),
        ("arange.default", {"end": {"as_int": 10**12}}),
        ("zeros.default", {"size": {"as_ints": [2**62, 2**62]}}),
    ],
)
def test_a_size_in_the_graph_is_bounded(entries: Entries, target: str, arguments: dict[str, Any]) -> None:
    """A graph of a kilobyte may not ask for all of the memory by one number."""

    def change(model: Any) -> None:
        node = model["graph_module"]["graph"]["nodes"][-1]
        node["target"] = f"torch.ops.aten.{target}"
        node["inputs"] = [{"name": name, "arg": arg, "kind": 1} for name, arg in arguments.items()]

    with pytest.raises(BundleCorrupt, match="elements"):
        archive.check(archive_of(with_json(entries, archive.MODEL, change)))
