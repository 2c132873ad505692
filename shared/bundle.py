"""The bundle: the deployable artifact, one directory.

::

    bundle.json      what this file describes; its sha256 is the bundle's digest
    graph.pt2        preprocessing and model as one exported graph (``shared.archive`` says what it may hold)
    golden.parquet   raw rows with their expected encoded tensors and scores (``shared.golden``)

Loading reads and checks; it executes nothing and needs no torch. ``shared.build`` writes, ``shared.scorer`` opens.
"""

import hashlib
import math
import os
import re
import stat
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.errors import BundleCorrupt, BundleError, BundleNotFound, SchemaError
from shared.exact_json import loads_unique
from shared.fitted import Fitted
from shared.schema import Schema
from shared.tile import Tile

MANIFEST = "bundle.json"
GRAPH = "graph.pt2"
GOLDEN = "golden.parquet"
FILES = (GOLDEN, GRAPH)

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
MAX_FILE_BYTES = 16 * 1024**3
MAX_ROW_ELEMENTS = 32 * 1024 * 1024
"""Elements of one row of all inputs together: as many as eight of the largest tensors have."""

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class FileDigest(BaseModel):
    """What a file of the bundle must be."""

    model_config = _FROZEN

    bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class InputTensor(BaseModel):
    """One input of the graph. ``shape`` is that of one row: the graph takes ``[rows, *shape]``."""

    model_config = _FROZEN

    name: str
    shape: tuple[int, ...]
    dtype: Literal["float32", "int64", "bool"]


class Manifest(BaseModel):
    """The content of ``bundle.json``. ``fitted`` holds the schema, with its outputs and class mapping."""

    model_config = _FROZEN

    format: Literal[1] = 1
    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    version: Annotated[str, Field(pattern=f"^{VERSION.pattern}$")]
    fitted: Fitted
    inputs: tuple[InputTensor, ...]
    engine: Literal["export"]
    tile: Tile
    golden_rows: Annotated[int, Field(ge=1)]
    created_at: str
    code_revision: str | None
    torch_version: str
    files: dict[str, FileDigest]

    def to_json(self) -> bytes:
        """The bytes of ``bundle.json``."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2) + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle whose files were found to be the ones that its manifest lists."""

    path: Path
    manifest: Manifest
    digest: str

    @property
    def name(self) -> str:
        """The model's name."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """The model's version."""
        return self.manifest.version

    @property
    def fitted(self) -> Fitted:
        """The schema with what was learnt from the training table."""
        return self.manifest.fitted

    @property
    def schema(self) -> Schema:
        """The contract: features and outputs."""
        return self.manifest.fitted.schema

    def read(self, file: str) -> bytes:
        """The bytes of one of ``FILES``, checked as they are read: what is checked is what is used."""
        expected = self.manifest.files[file]
        data = _read(self.path / file, limit=expected.bytes)
        if len(data) != expected.bytes or hashlib.sha256(data).hexdigest() != expected.sha256:
            raise BundleCorrupt(f"bundle {self.path}: {file} is not the file that was built; copy the bundle again")
        return data


def load_bundle(path: Path) -> Bundle:
    """Reads and checks a bundle's directory. BundleNotFound or BundleCorrupt say what is wrong with it."""
    path = Path(path)
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        raise BundleNotFound(f"bundle {path} {what}; `forescore bundle build` makes one")
    if not (path / MANIFEST).exists():
        raise BundleNotFound(f"{path} is not a bundle: it has no {MANIFEST}; `forescore bundle build` makes one")
    _require_files(path)
    text = _read(path / MANIFEST, limit=MAX_MANIFEST_BYTES)
    manifest = _parse(path, text)
    bundle = Bundle(path=path, manifest=manifest, digest=hashlib.sha256(text).hexdigest())
    for file in FILES:
        _check_digest(bundle, file)
    return bundle


def input_tensors(schema: Schema) -> tuple[InputTensor, ...]:
    """The graph's inputs, in order: ``numeric`` if there are dense features, ``codes`` if categories, then tensors."""
    inputs = []
    if schema.dense_inputs:
        inputs.append(InputTensor(name="numeric", shape=(len(schema.dense_inputs),), dtype="float32"))
    if schema.categoricals:
        inputs.append(InputTensor(name="codes", shape=(len(schema.categoricals),), dtype="int64"))
    inputs.extend(InputTensor(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype) for tensor in schema.tensors)
    return tuple(inputs)


def require_name(name: str, version: str) -> None:
    """Refuses what cannot be a bundle's name or version: both become parts of store keys and file names."""
    if not NAME.fullmatch(name):
        raise BundleError(f"bundle name {name[:100]!r}: 1 to 64 of a-z, 0-9, '_', '-'; a letter or digit first")
    if not VERSION.fullmatch(version):
        raise BundleError(f"bundle version {version[:100]!r}: 1 to 64 of letters, digits, '.', '_', '-'")


def _parse(path: Path, text: bytes) -> Manifest:
    try:
        loads_unique(text)
    except (ValueError, RecursionError):
        raise BundleCorrupt(
            f"bundle {path}: {MANIFEST} is not JSON, is nested without end, or has a key twice; build the bundle again"
        ) from None
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise BundleCorrupt(f"bundle {path}: {MANIFEST}: {place or 'text'}: {first['msg']}") from None
    except SchemaError as error:
        raise BundleCorrupt(f"bundle {path}: {MANIFEST}: {error}") from None
    if set(manifest.files) != set(FILES):
        raise BundleCorrupt(f"bundle {path}: {MANIFEST} must list exactly {' and '.join(FILES)}")
    if manifest.inputs != input_tensors(manifest.fitted.schema):
        raise BundleCorrupt(f"bundle {path}: {MANIFEST}: the inputs are not those of the schema")
    if (elements := sum(math.prod(tensor.shape) for tensor in manifest.inputs)) > MAX_ROW_ELEMENTS:
        raise BundleCorrupt(
            f"bundle {path}: {MANIFEST}: one row has {elements:,} elements, of {MAX_ROW_ELEMENTS:,} at most; "
            "give the model smaller tensors"
        )
    return manifest


def _require_files(path: Path) -> None:
    """A bundle holds its three files and nothing else, none of them a link."""
    expected = {MANIFEST, *FILES}
    found = {entry.name: entry for entry in os.scandir(path)}
    for name in sorted(expected - set(found)):
        raise BundleCorrupt(f"bundle {path}: {name} is missing; copy the bundle again")
    for name in sorted(set(found) - expected):
        raise BundleCorrupt(f"bundle {path}: {name[:100]!r} does not belong there; a bundle is {sorted(expected)}")
    for name, entry in sorted(found.items()):
        if not entry.is_file(follow_symlinks=False):
            raise BundleCorrupt(f"bundle {path}: {name} is not a regular file; links are not followed")
        if entry.stat(follow_symlinks=False).st_nlink > 1:
            raise BundleCorrupt(
                f"bundle {path}: {name} has a second name elsewhere, by which it could be changed (a hard link); "
                "copy the bundle as files of its own"
            )


def _check_digest(bundle: Bundle, file: str) -> None:
    expected = bundle.manifest.files[file]
    with _open(bundle.path / file) as handle:
        size = os.fstat(handle.fileno()).st_size
        if size != expected.bytes or hashlib.file_digest(handle, "sha256").hexdigest() != expected.sha256:
            raise BundleCorrupt(f"bundle {bundle.path}: {file} is not the file that was built; copy the bundle again")


def _read(path: Path, *, limit: int) -> bytes:
    with _open(path) as handle:
        data = handle.read(limit + 1)
    if len(data) > limit:
        raise BundleCorrupt(f"bundle {path.parent}: {path.name} has more than {limit} bytes; copy the bundle again")
    return data


def _open(path: Path) -> BufferedReader:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe put in its place must not hold the process
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise BundleCorrupt(f"bundle {path.parent}: {path.name} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleCorrupt(f"bundle {path.parent}: {path.name} is not a regular file; copy the bundle as plain files")
    return os.fdopen(descriptor, "rb")
