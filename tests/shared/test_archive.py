"""Each attack here is real: without the check, torch.export.load or the first call carries it out."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.bundles import Entries, archive_of, entries_of, forge_graph, with_json

from shared import archive
from shared.bundle import GRAPH, Bundle, load_bundle
from shared.errors import BundleCorrupt
from shared.scorer import open_scorer

Attack = Callable[[Entries, Path], Entries]


class Evil:
    """An object whose unpickling leaves a mark."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.marker,)


@pytest.fixture
def entries(purchase: Bundle) -> Entries:
    return entries_of(purchase.read(GRAPH))


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def pickled(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def example_rows(entries: Entries, marker: Path) -> Entries:
    return {**entries, archive.SAMPLES: pickled((Evil(marker),))}


def pickled_weight(entries: Entries, marker: Path) -> Entries:
    def change(config: Any) -> None:
        config["config"]["module.weight"]["use_pickle"] = True

    return {**with_json(entries, archive.WEIGHTS, change), "data/weights/weight_0": pickled(Evil(marker))}


def opaque_constant(entries: Entries, marker: Path) -> Entries:
    def change(config: Any) -> None:
        payload = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        config["config"]["evil"] = payload

    changed = with_json(entries, archive.CONSTANTS, change)
    return {**changed, "data/constants/opaque_obj_0": pickle.dumps(Evil(marker))}


def legacy_weights(entries: Entries, marker: Path) -> Entries:
    return {**entries, "data/weights/model.pt": pickled({"x": Evil(marker)})}


def symbolic_size(entries: Entries, marker: Path) -> Entries:
    def change(model: Any) -> None:
        for value in model["graph_module"]["graph"]["tensor_values"].values():
            for size in value["sizes"]:
                if "as_expr" in size:
                    size["as_expr"]["expr_str"] = f"__import__('pathlib').Path({str(marker)!r}).touch() or 3"

    return with_json(entries, archive.MODEL, change)


def name_as_source(entries: Entries, marker: Path) -> Entries:
    text = entries[archive.MODEL].decode()
    name = json.loads(text)["graph_module"]["graph"]["inputs"][-1]["as_tensor"]["name"]
    source = f"{name}=__import__('pathlib').Path({str(marker)!r}).touch()"
    return {**entries, archive.MODEL: text.replace(json.dumps(name), json.dumps(source)).encode()}


def file_operator(entries: Entries, marker: Path) -> Entries:
    def change(model: Any) -> None:
        node = model["graph_module"]["graph"]["nodes"][0]
        node["target"] = "torch.ops.aten.from_file.default"
        node["inputs"] = [
            {"name": "filename", "arg": {"as_string": str(marker)}, "kind": 1},
            {"name": "shared", "arg": {"as_bool": True}, "kind": 2},
            {"name": "size", "arg": {"as_int": 4}, "kind": 2},
        ]

    return with_json(entries, archive.MODEL, change)


ATTACKS = [
    example_rows,
    pickled_weight,
    opaque_constant,
    legacy_weights,
    symbolic_size,
    name_as_source,
    file_operator,
]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.filterwarnings("ignore")
def test_the_attacks_are_real(entries: Entries, marker: Path, attack: Attack) -> None:
    """Loaded and called without the check, each of these archives writes a file."""
    try:
        torch.export.load(io.BytesIO(archive_of(attack(entries, marker)))).module()(torch.ones(2, 3))
    except Exception:  # noqa: BLE001 - most fail, after the harm is done
        assert marker.exists()
    assert marker.exists()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_bundle_executes_nothing(copied: Bundle, entries: Entries, marker: Path, attack: Attack) -> None:
    """A bundle with such a graph, every digest correct, is refused and has written nothing."""
    path = forge_graph(copied, attack(entries, marker))
    with pytest.raises(BundleCorrupt, match="is refused"):
        open_scorer(load_bundle(path), device="cpu")
    assert not marker.exists()


@pytest.mark.parametrize(
    "name",
    [
        "data/aotinductor/model/model.so",
        "data/constants/custom_obj_0",
        "data/constants/opaque_obj_0",
        "data/constants/model.pt",
        "extra/note",
        "version",
        "serialized_state_dict.pt",
        "models/other.json",
        "data/weights/weight_x",
    ],
)
def test_an_entry_of_another_kind_is_refused(entries: Entries, name: str) -> None:
    """Only the graph and its weights belong into an archive: no compiled code, no objects, nothing beside."""
    with pytest.raises(BundleCorrupt, match="does not belong"):
        archive.check(archive_of({**entries, name: b"x"}))


def zipped(entries: Entries, *, compression: int = zipfile.ZIP_STORED, top: str = "archive/") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as writer:
        for name, data in entries.items():
            writer.writestr(top + name, data)
    return buffer.getvalue()


@pytest.mark.parametrize("top", ["../", "/", "", "a/b/"])
def test_a_path_that_leads_elsewhere_is_refused(entries: Entries, top: str) -> None:
    """All entries lie under one top folder."""
    with pytest.raises(BundleCorrupt, match="does not belong"):
        archive.check(zipped({**entries, "../../marker": b"x"}, top=top))


def test_compressed_entries_are_refused(entries: Entries) -> None:
    """Stored entries cannot unpack to more than the file's size: there is no bomb."""
    with pytest.raises(BundleCorrupt, match="compressed"):
        archive.check(zipped(entries, compression=zipfile.ZIP_DEFLATED))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_entry_twice_is_refused(entries: Entries) -> None:
    """Two entries of one name are two answers to what was checked."""
    buffer = io.BytesIO(zipped(entries))
    with zipfile.ZipFile(buffer, "a") as writer:
        writer.writestr(f"archive/{archive.MODEL}", b"{}")
    with pytest.raises(BundleCorrupt, match="does not belong"):
        archive.check(buffer.getvalue())


@pytest.mark.parametrize("hostile_first", [True, False])
def test_two_archives_in_one_are_refused(entries: Entries, marker: Path, *, hostile_first: bool) -> None:
    """What is checked is what torch reads: bytes in which two readers could see two archives are refused."""
    innocent, hostile = archive_of(entries), archive_of(pickled_weight(entries, marker))
    with pytest.raises(BundleCorrupt):
        archive.check(hostile + innocent if hostile_first else innocent + hostile)


@pytest.mark.parametrize("data", [b"", b"PK", b"x" * 1000, b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    """Any other bytes are refused with the same typed error."""
    with pytest.raises(BundleCorrupt):
        archive.check(data)


def test_a_truncated_archive_is_refused(purchase: Bundle) -> None:
    """Half an archive is no archive."""
    data = purchase.read(GRAPH)
    with pytest.raises(BundleCorrupt):
        archive.check(data[: len(data) // 2])


def test_a_flipped_offset_is_refused(purchase: Bundle) -> None:
    """A directory that points elsewhere is refused."""
    data = bytearray(purchase.read(GRAPH))
    start = data.rindex(b"PK\x01\x02")
    struct.pack_into("<I", data, start + 42, 1)
    with pytest.raises(BundleCorrupt):
        archive.check(bytes(data))


def node(change: Callable[[Any], None]) -> Attack:
    return lambda entries, _: with_json(
        entries, archive.MODEL, lambda model: change(model["graph_module"]["graph"]["nodes"][-1])
    )


def model(change: Callable[[Any], None]) -> Attack:
    return lambda entries, _: with_json(entries, archive.MODEL, change)


def weights(change: Callable[[Any], None]) -> Attack:
    return lambda entries, _: with_json(entries, archive.WEIGHTS, change)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


FORMS: dict[str, Attack] = {
    "a function of torch": node(lambda each: each.update(target="torch.os.system")),
    "an operator of another library": node(lambda each: each.update(target="torch.ops.prim.Print.default")),
    "a method of the namespace": node(lambda each: each.update(target="torch.ops.aten.__class__.mro")),
    "an operator that gives no tensor": node(lambda each: each.update(target="torch.ops.aten.append.t")),
    "a graph in a graph": node(lambda each: each["inputs"][0].update(arg={"as_graph": {"name": "x", "graph": {}}})),
    "metadata": node(lambda each: each.update(metadata={"source_fn_stack": "x,torch.os.system"})),
    "a name with a dot": node(lambda each: each.update(name="a.b")),
    "a keyword as a name": node(lambda each: each.update(name="lambda")),
    "another device": node(lambda each: each["inputs"].append({"name": "d", "arg": {"as_device": {"type": "cuda"}}})),
    "guards": model(lambda each: each.update(guards_code=["print()"])),
    "another dialect": model(lambda each: each.update(verifiers=["MINE"])),
    "another calling convention": model(
        lambda each: each["graph_module"]["module_call_graph"][0]["signature"].update(in_spec='[1, {"type": "x"}]')
    ),
    "a second output": model(lambda each: each["graph_module"]["signature"]["output_specs"].append({"token": {}})),
    "an input that is no tensor": model(
        lambda each: each["graph_module"]["signature"]["input_specs"].append({"custom_obj": {"arg": {}}})
    ),
    "no graph": lambda entries, _: {**entries, archive.MODEL: b"[]"},
    "JSON without end": lambda entries, _: {**entries, archive.MODEL: nested(200_000)},
    "no JSON": lambda entries, _: {**entries, archive.MODEL: b"\xff\xfe"},
    "weights of no form": lambda entries, _: {**entries, archive.WEIGHTS: b'{"config": []}'},
    "a weight larger than its bytes": weights(
        lambda each: each["config"]["module.weight"]["tensor_meta"].update(sizes=[{"as_int": 10**12}])
    ),
    "a weight of symbolic size": weights(
        lambda each: each["config"]["module.weight"]["tensor_meta"].update(sizes=[{"as_expr": {"expr_str": "3"}}])
    ),
    "a weight from elsewhere": weights(lambda each: each["config"]["module.weight"].update(path_name="../weight_0")),
    "a weight on another device": weights(
        lambda each: each["config"]["module.weight"]["tensor_meta"].update(device={"type": "cuda", "index": 0})
    ),
    "another format": lambda entries, _: {**entries, "archive_format": b"pt3"},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_another_form_is_refused(entries: Entries, marker: Path, form: Attack) -> None:
    """What is not of the one form that a build writes is refused before torch reads it."""
    with pytest.raises(BundleCorrupt, match="is refused"):
        archive.check(archive_of(form(entries, marker)))


@pytest.mark.parametrize(
    "expression",
    [
        "Symbol('s0').__class__",
        "print(s0)",
        "s0 if s0 else s0",
        "[s0]",
        "s0.args",
        "lambda: s0",
        "Symbol('s0', positive=True, integer=True, x=print())",
        "Symbol('__import__')",
        "9" * 3000,
        "",
    ],
)
def test_an_expression_is_arithmetic_on_sizes(entries: Entries, expression: str) -> None:
    """torch evaluates expressions as Python, so they are made of known words only."""

    def change(content: Any) -> None:
        content["graph_module"]["graph"]["sym_int_values"]["x"] = {"as_expr": {"expr_str": expression, "hint": None}}

    with pytest.raises(BundleCorrupt, match="expr_str"):
        archive.check(archive_of(with_json(entries, archive.MODEL, change)))


def test_the_graph_as_built_passes(entries: Entries, everything: Bundle) -> None:
    """Neither a small nor a large build is refused, as torch or as this test writes it."""
    archive.check(archive_of(entries))
    archive.check(everything.read(GRAPH))


def test_the_graph_tells_nothing_of_where_it_was_built(everything: Bundle) -> None:
    """No path, no source line and no example row of the building machine is in the archive."""
    data = everything.read(GRAPH)
    assert os.fsencode(Path(__file__).parent.parent) not in data
    assert b"forward(" not in data
    assert entries_of(data)[archive.SAMPLES] == b""
