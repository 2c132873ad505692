"""Bundles that were tampered with by somebody who knows how: every digest fits."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from shared.bundle import GRAPH, MANIFEST, Bundle

WRITTEN_BY_TORCH = {".data/version", ".data/serialization_id", "byteorder"}

Entries = dict[str, bytes]


def entries_of(data: bytes) -> Entries:
    """The entries of a graph archive by their names below its top folder."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename.partition("/")[2]: archive.read(info) for info in archive.infolist()}


def archive_of(entries: Entries) -> bytes:
    """An archive as torch writes it."""
    buffer = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(buffer)
    writer.set_min_version(6)
    for name, data in entries.items():
        if name not in WRITTEN_BY_TORCH:
            writer.write_record(name, data, len(data))
    writer.write_end_of_file()
    return buffer.getvalue()


def with_json(entries: Entries, name: str, change: Callable[[Any], None]) -> Entries:
    """The entries with one JSON entry changed in place."""
    content = json.loads(entries[name])
    change(content)
    return {**entries, name: json.dumps(content).encode()}


def forge(bundle: Bundle, file: str, data: bytes) -> Path:
    """Replaces a file of a bundle and corrects its digest."""
    (bundle.path / file).write_bytes(data)

    def change(manifest: Any) -> None:
        manifest["files"][file] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    return forge_manifest(bundle, change)


def forge_manifest(bundle: Bundle, change: Callable[[Any], None]) -> Path:
    """Changes ``bundle.json`` in place."""
    path = bundle.path / MANIFEST
    manifest = json.loads(path.read_bytes())
    change(manifest)
    path.write_text(json.dumps(manifest))
    return bundle.path


def forge_graph(bundle: Bundle, entries: Entries) -> Path:
    """Replaces a bundle's graph by an archive of these entries."""
    return forge(bundle, GRAPH, archive_of(entries))
