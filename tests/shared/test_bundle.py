import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bundles import forge_manifest

from shared.bundle import FILES, GOLDEN, GRAPH, MANIFEST, Bundle, input_tensors, load_bundle
from shared.errors import BundleCorrupt, BundleNotFound


def test_a_bundle_reads_back_as_it_was_built(purchase: Bundle) -> None:
    """Loading gives name, version, schema and one digest for all of it."""
    again = load_bundle(purchase.path)
    assert again == purchase
    assert (again.name, again.version, again.schema.entity) == ("purchase", "1", "customer_id")
    assert again.fitted.schema == again.schema


def test_the_digest_covers_every_file(purchase: Bundle) -> None:
    """The digest is that of bundle.json, which lists the digests of all others."""
    assert set(purchase.manifest.files) == set(FILES) == {path.name for path in purchase.path.iterdir()} - {MANIFEST}


@pytest.mark.parametrize("name", [".", "missing"])
def test_a_path_without_a_bundle_is_told(tmp_path: Path, name: str) -> None:
    """A path that is not a bundle is named, with the command that makes one."""
    with pytest.raises(BundleNotFound, match="forescore bundle build"):
        load_bundle(tmp_path / name)


def test_a_file_is_no_bundle(tmp_path: Path) -> None:
    """A bundle is a directory."""
    (tmp_path / "file").touch()
    with pytest.raises(BundleNotFound, match="not a directory"):
        load_bundle(tmp_path / "file")


@pytest.mark.parametrize("file", FILES)
def test_a_changed_byte_is_noticed(copied: Bundle, file: str) -> None:
    """A file of the right size with one other bit is not the one that was built."""
    data = bytearray((copied.path / file).read_bytes())
    data[len(data) // 2] ^= 1
    (copied.path / file).write_bytes(data)
    with pytest.raises(BundleCorrupt, match=f"{file} is not the file that was built"):
        load_bundle(copied.path)


def test_a_file_changed_after_loading_is_noticed(copied: Bundle) -> None:
    """What is checked is what is used: the bytes are checked again as they are read."""
    (copied.path / GRAPH).write_bytes(b"x" * copied.manifest.files[GRAPH].bytes)
    with pytest.raises(BundleCorrupt, match=GRAPH):
        copied.read(GRAPH)


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_named(copied: Bundle, file: str) -> None:
    """A file that is not there is named."""
    (copied.path / file).unlink()
    with pytest.raises(BundleCorrupt, match=f"{file} is missing"):
        load_bundle(copied.path)


def test_a_file_too_many_is_named(copied: Bundle) -> None:
    """A bundle holds its files and nothing else."""
    (copied.path / "notes.py").touch()
    with pytest.raises(BundleCorrupt, match=r"notes\.py"):
        load_bundle(copied.path)


@pytest.mark.parametrize("file", [*FILES, MANIFEST])
def test_links_are_not_followed(copied: Bundle, tmp_path: Path, file: str) -> None:
    """A link in place of a file is refused, also when it leads to the right bytes."""
    (copied.path / file).rename(tmp_path / "elsewhere")
    (copied.path / file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleCorrupt, match="not a regular file"):
        load_bundle(copied.path)


def test_a_pipe_does_not_hold_the_process(copied: Bundle) -> None:
    """A pipe in place of a file is refused at once."""
    (copied.path / GOLDEN).unlink()
    os.mkfifo(copied.path / GOLDEN)
    with pytest.raises(BundleCorrupt, match="not a regular file"):
        load_bundle(copied.path)


def put(*path: str, value: object) -> Callable[[Any], None]:
    """A change of the manifest."""

    def change(manifest: Any) -> None:
        for step in path[:-1]:
            manifest = manifest[step]
        manifest[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("format", value=2),
        put("name", value="../x"),
        put("name", value="Upper"),
        put("version", value="a b"),
        put("version", value="1\n"),
        put("engine", value="mine"),
        put("tile", "rows", value=0),
        put("files", "graph.pt2", "sha256", value="../"),
        put("files", "extra", value={"bytes": 1, "sha256": "0" * 64}),
        put("files", "graph.pt2", "bytes", value=-1),
        put("inputs", value=[]),
        put("fitted", "schema", "features", value=[]),
        put("surprise", value=1),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(copied: Bundle, change: Callable[[Any], None]) -> None:
    """bundle.json is parsed once, strictly; what does not fit is refused with the file's name."""
    with pytest.raises(BundleCorrupt, match=r"bundle\.json"):
        load_bundle(forge_manifest(copied, change))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_manifest_that_is_no_json_is_refused(copied: Bundle, text: bytes) -> None:
    """Bytes that are no JSON object are refused with the same typed error."""
    (copied.path / MANIFEST).write_bytes(text)
    with pytest.raises(BundleCorrupt, match=r"bundle\.json"):
        load_bundle(copied.path)


def test_a_huge_manifest_is_not_read(copied: Bundle) -> None:
    """bundle.json is bounded before it is parsed."""
    os.truncate(copied.path / MANIFEST, 17 * 1024 * 1024)
    with pytest.raises(BundleCorrupt, match="more than"):
        load_bundle(copied.path)


def test_a_file_larger_than_it_says_is_not_read(copied: Bundle) -> None:
    """The size is compared before a file is hashed or read."""
    os.truncate(copied.path / GRAPH, 1 << 40)
    with pytest.raises(BundleCorrupt, match=GRAPH):
        load_bundle(copied.path)
    with pytest.raises(BundleCorrupt, match="more than"):
        copied.read(GRAPH)


def test_the_inputs_are_in_the_order_of_the_graph(everything: Bundle) -> None:
    """Numbers, then codes, then each tensor, with the shape of one row."""
    told = [(tensor.name, tensor.dtype, tensor.shape) for tensor in input_tensors(everything.schema)]
    assert told == [
        ("numeric", "float32", (3,)),
        ("codes", "int64", (2,)),
        ("embedding", "float32", (4,)),
        ("tokens", "int64", (6,)),
        ("mask", "bool", (6,)),
    ]


def test_a_moved_bundle_is_the_same(purchase: Bundle, tmp_path: Path) -> None:
    """The digest does not depend on where a bundle lies."""
    shutil.copytree(purchase.path, tmp_path / "moved")
    assert load_bundle(tmp_path / "moved").digest == purchase.digest


def test_the_manifest_is_for_people_too(purchase: Bundle) -> None:
    """bundle.json is indented JSON that says what the bundle is."""
    manifest = json.loads((purchase.path / MANIFEST).read_text())
    assert manifest["name"] == "purchase"
    assert manifest["fitted"]["schema"]["outputs"][0]["name"] == "buys"
    assert manifest["torch_version"].startswith("2.")


def test_loading_needs_no_torch(purchase: Bundle) -> None:
    """What a bundle says can be read where torch is not imported."""
    code = (
        "import sys, pathlib; from shared.bundle import load_bundle; "
        "load_bundle(pathlib.Path(sys.argv[1])); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(purchase.path)], check=True, timeout=60)
