"""What a bundle's ``graph.pt2`` may contain, checked before torch is given it.

torch reads such an archive with the trust of one's own file: it unpickles objects, evaluates symbolic expressions,
calls any function that a node names, and writes Python source from the names of nodes. So nothing of that may be in
it. An archive holds weights as raw bytes and a graph as JSON; here every entry, every string of the JSON and every
operator is either of a known, harmless form or refused. ``shared.graph_json`` checks the JSON.
"""

import io
import re
import zipfile
from typing import Any

import torch

from shared.exact_json import loads_unique
from shared.graph_json import check_model, refuse

MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
SAMPLES = "data/sample_inputs/model.pt"

_EXACT = {
    "archive_format": b"pt2",
    "archive_version": b"0",
    "byteorder": b"little",
    SAMPLES: b"",  # torch would unpickle it: a build leaves it empty
}
_REQUIRED = {*_EXACT, MODEL, WEIGHTS, CONSTANTS}
_ALLOWED = re.compile(
    r"data/weights/weight_\d{1,7}|data/constants/tensor_\d{1,7}|\.data/version|\.data/serialization_id"
)
_FOLDERS = {
    WEIGHTS: ("data/weights/", re.compile(r"weight_\d{1,7}")),
    CONSTANTS: ("data/constants/", re.compile(r"tensor_\d{1,7}")),
}
_FQN = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_MAX_ENTRIES = 100_000

# bytes of one element by torch's serialised ScalarType
_ELEMENT_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 12: 1, 13: 2}


def check(data: bytes) -> None:
    """Refuses an archive that could do more than describe a graph. BundleCorrupt says what was found."""
    try:
        _check(data)
    except RecursionError:
        refuse("its JSON is nested without end")


def _check(data: bytes) -> None:
    sizes = _entries(data)
    records = _records(data, sizes)
    for name, expected in _EXACT.items():
        if records[name] != expected:
            refuse(f"entry {name} is not as torch.export.save writes it")
    for config in (WEIGHTS, CONSTANTS):
        _check_payload(config, _parsed(config, records[config]), sizes)
    check_model(_parsed(MODEL, records[MODEL]))


def _records(data: bytes, sizes: dict[str, int]) -> dict[str, bytes]:
    """All entries through the reader that loading will use: what is checked is what is read, and it is no larger."""
    try:
        reader = torch._C.PyTorchFileReader(io.BytesIO(data))  # noqa: SLF001 - torch gives this reader no other name
        if {name: reader.get_record_size(name) for name in reader.get_all_records()} != sizes:
            refuse("its directory can be read in two ways")
        return {name: reader.get_record(name) for name in sizes}
    except RuntimeError:
        refuse("torch cannot read it")


def _entries(data: bytes) -> dict[str, int]:
    """Names below the one top folder, and sizes: stored, plain, bounded by the file's own size."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError):
        refuse("it is not a zip archive")
    if len(infos) > _MAX_ENTRIES:
        refuse("it has too many entries")
    top = infos[0].filename.partition("/")[0] if infos else ""
    sizes: dict[str, int] = {}
    for info in infos:
        folder, _, name = info.filename.partition("/")
        if folder != top or name in sizes or not (name in _REQUIRED or _ALLOWED.fullmatch(name)):
            refuse(f"entry {info.filename[:100]!r} does not belong into it")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
            refuse(f"entry {info.filename[:100]!r} is compressed or encrypted")
        sizes[name] = info.file_size
    if sum(sizes.values()) > len(data):
        refuse("its entries overlap")
    if missing := sorted(_REQUIRED - set(sizes)):
        refuse(f"entry {missing[0]} is missing")
    return sizes


def _parsed(name: str, record: bytes) -> Any:
    try:
        return loads_unique(record)
    except (ValueError, RecursionError):
        refuse(f"entry {name} is not JSON, or says one thing twice")


def _check_payload(config: str, content: Any, sizes: dict[str, int]) -> None:
    """Each tensor is raw bytes of its own entry, and no larger than it."""
    folder, file_name = _FOLDERS[config]
    match content:
        case {"config": dict(payloads)} if len(content) == 1:
            pass
        case _:
            refuse(f"entry {config} is not a list of tensors")
    for name, payload in payloads.items():
        match payload:
            case {
                "path_name": str(path),
                "is_param": bool(),
                "use_pickle": False,
                "tensor_meta": {"dtype": int(dtype), "sizes": list(extents), "device": {"type": "cpu"}},
            } if _FQN.fullmatch(name) and file_name.fullmatch(path) and dtype in _ELEMENT_BYTES:
                size = _ELEMENT_BYTES[dtype]
            case _:
                refuse(f"entry {config}: {name[:100]!r} is not a plain CPU tensor")
        for extent in extents:
            match extent:
                case {"as_int": int(count)} if count >= 0:
                    size *= count
                case _:
                    refuse(f"entry {config}: {name[:100]!r} has a size that is not a number")
        if size > sizes.get(folder + path, -1):
            refuse(f"entry {config}: {name[:100]!r} is larger than its bytes")
