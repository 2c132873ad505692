"""A graph compiled by AOTInductor, run by the C interface that its code has.

A pass of one tile takes microseconds, as does each thing that Python does for it. So what only depends on shapes is
worked out once for each shape, and torch is told of addresses, which it takes as they are.
https://github.com/pytorch/pytorch/blob/main/torch/csrc/inductor/aoti_runtime/interface.h
"""

import ctypes
from collections.abc import Callable
from ctypes import string_at
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from threading import local
from typing import Any

import numpy as np

from shared.libtorch import libtorch, threads_in_use
from shared.memory import Array, Shapes, aligned, block_for, extent, laid
from shared.packing import RowPacking
from shared.row_reader import Line

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_FLOAT32 = np.dtype(np.float32)
_DTYPES = {"f": "float32", "q": "int64", "l": "int64", "?": "bool"}
_NO_DEVICE = -1
_KEPT_BYTES = 1024**2
"""Inputs of one pass up to so many bytes are copied to memory that torch knows already, and that is in the processor's
cache."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How the scores of a pass lie in torch's memory. ``strides`` and ``extent`` in bytes."""

    numbers: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    extent: int


@dataclass(slots=True)
class _Size:
    """What a thread keeps for inputs of some shapes: memory that torch knows, where they are few bytes, and what came
    back the last time."""

    kept: list[tuple[Array, int | None, int]] = field(default_factory=list)
    """For each input: the memory, torch's tensor of it, and where the pass looks for that."""
    form: _Form | None = None


@dataclass(slots=True, kw_only=True)
class _Row:
    """What a thread keeps for rows that come one by one: as a ``_Size``, and how the memory is filled."""

    packing: RowPacking
    fill: Callable[[Line], None]
    kept: list[tuple[int | None, int]]
    size: _Size


class _Places(local):
    """Where a thread's passes leave and find addresses: made once, as ctypes takes longer to make than to use them."""

    def __init__(self, inputs: int) -> None:
        threads_in_use()  # settles them for this thread
        self._handles = (_POINTER * inputs)()
        self.first = ctypes.addressof(self._handles)
        self.inputs = [self.first + place * ctypes.sizeof(_POINTER) for place in range(inputs)]
        self.output, self.found = _POINTER(), ctypes.c_int64()
        self.output_at, self.found_at = ctypes.addressof(self.output), ctypes.addressof(self.found)
        self.sizes: dict[tuple[tuple[int, ...], ...], _Size] = {}
        self.row: _Row | None = None
        self.block = block_for(_KEPT_BYTES)


class Container:
    """Compiled code, loaded. Threads may share it: so many passes as there are ``instances`` run at once."""

    def __init__(self, code: Path, instances: int) -> None:
        torch = libtorch()
        library = ctypes.CDLL(str(code))  # lets go of the interpreter while a pass runs
        self._run = library.AOTInductorModelContainerRun
        self._run.argtypes = [_POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _POINTER]
        self._repeat, self._delete = torch.aoti_torch_new_tensor_handle, torch.aoti_torch_delete_tensor_object
        self._numbers, self._data = torch.aoti_torch_get_numel, torch.aoti_torch_get_data_ptr
        self._handle = _created(library, instances)
        self._inputs = _count(library.AOTInductorModelContainerGetNumInputs, self._handle)
        if _count(library.AOTInductorModelContainerGetNumOutputs, self._handle) != 1:
            raise OSError("the compiled graph has not one output")
        self._places = _Places(self._inputs)

    def __call__(self, inputs: tuple[Array, ...]) -> Array:
        """One pass, over copies of the inputs. RuntimeError or TypeError if it fails. The scores are read-only."""
        places = self._places
        shapes = tuple([part.shape for part in inputs])
        size = places.sizes.get(shapes) or self._sized(shapes, inputs)
        if size.kept:
            for part, (memory, tensor, place) in zip(inputs, size.kept, strict=True):
                memory[...] = part
                self._repeat(tensor, place)  # as many times as passes take it away
            return self._passed(places, size)
        copies = aligned(_shapes(inputs))
        for part, memory, place in zip(inputs, copies, places.inputs, strict=True):
            memory[...] = part
            _tell(memory, place)
        return self._passed(places, size)

    def repeated(self, line: Line, packing: RowPacking) -> Array:
        """One pass of a tile that has this row in every place. Errors as those of a call."""
        places = self._places
        row = places.row
        if row is None or row.packing is not packing:
            row = places.row = self._row(packing)
        row.fill(line)
        for tensor, place in row.kept:
            self._repeat(tensor, place)
        return self._passed(places, row.size)

    def _passed(self, places: _Places, size: _Size) -> Array:
        """The scores of what torch finds at the places."""
        if self._run(self._handle, places.first, self._inputs, places.output_at, 1, None, None):
            raise RuntimeError("the graph failed")
        output, found, at = places.output.value, places.found, places.found_at
        self._numbers(output, at)
        form = size.form
        if form is None or form.numbers != found.value:
            form = size.form = _form(output, found.value)
        self._data(output, at)
        scores = np.ndarray(form.shape, _FLOAT32, string_at(found.value, form.extent), 0, form.strides)
        self._delete(output)
        return scores

    def _row(self, packing: RowPacking) -> _Row:
        held = packing.held()
        self._require_inputs(held.inputs)
        kept = [(_known(memory), place) for memory, place in zip(held.inputs, self._places.inputs, strict=True)]
        return _Row(packing=packing, fill=held.fill, kept=kept, size=_Size())

    def _require_inputs(self, inputs: tuple[Array, ...]) -> None:
        if len(inputs) != self._inputs:
            raise TypeError(f"the graph takes {self._inputs} inputs")

    def _sized(self, shapes: tuple[tuple[int, ...], ...], inputs: tuple[Array, ...]) -> _Size:
        """Whatever size comes next, it lies in the same memory: a thread makes one pass at a time."""
        self._require_inputs(inputs)
        places, forms = self._places, _shapes(inputs)
        size = places.sizes[shapes] = _Size()
        if 0 < extent(forms) <= _KEPT_BYTES:
            for memory, place in zip(laid(places.block, forms), places.inputs, strict=True):
                size.kept.append((memory, _known(memory), place))
        return size


def _shapes(inputs: tuple[Array, ...]) -> Shapes:
    return [(part.shape, part.dtype) for part in inputs]


def _known(memory: Array) -> int | None:
    """Torch's tensor of memory that stays where it is."""
    tensor = _POINTER()
    _tell(memory, ctypes.addressof(tensor))
    return tensor.value


def _tell(part: Array, place: int) -> None:
    """Tells torch where an aligned array lies. It must be kept until the pass has ended."""
    torch = libtorch()
    dimensions, sizes, strides, dtype, _ = _lying(part.shape, part.dtype.char)
    cpu, start = torch.aoti_torch_device_type_cpu(), part.ctypes.data
    _require(
        torch.aoti_torch_create_tensor_from_blob(start, dimensions, sizes, strides, 0, dtype, cpu, _NO_DEVICE, place)
    )


@lru_cache(maxsize=1024)
def _lying(shape: tuple[int, ...], dtype: str) -> tuple[int, int, int, int, Any]:
    """How torch is told of an array that lies row by row: dimensions, where sizes and strides are, the dtype; and what
    holds them."""
    line = ctypes.c_int64 * len(shape)
    sizes, strides = line(*shape), line(*(prod(shape[place + 1 :]) for place in range(len(shape))))
    number = getattr(libtorch(), f"aoti_torch_dtype_{_DTYPES[dtype]}")()
    return len(shape), ctypes.addressof(sizes), ctypes.addressof(strides), number, (sizes, strides)


def _form(output: int | None, numbers: int) -> _Form:
    """Asks torch how the scores lie. TypeError if they are no float32."""
    torch, found, line = libtorch(), ctypes.c_int64(), _POINTER()
    dtype = ctypes.c_int32()
    _require(torch.aoti_torch_get_dtype(output, ctypes.byref(dtype)))
    if dtype.value != torch.aoti_torch_dtype_float32():
        raise TypeError("the graph returns no float32")
    _require(torch.aoti_torch_get_dim(output, ctypes.byref(found)))
    _require(torch.aoti_torch_get_sizes(output, ctypes.byref(line)))
    shape = _integers(line.value, found.value)
    _require(torch.aoti_torch_get_strides(output, ctypes.byref(line)))
    strides = _integers(line.value, found.value)
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return _Form(
        numbers=numbers,
        shape=shape,
        strides=tuple(stride * _FLOAT32.itemsize for stride in strides),
        extent=(last + 1) * _FLOAT32.itemsize if numbers else 0,
    )


def _integers(start: int | None, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(start)) if start else ()


def _created(library: ctypes.CDLL, instances: int) -> int:
    """A new container. It lives as long as the process, as the code does."""
    handle = _POINTER()
    create = library.AOTInductorModelContainerCreateWithDevice
    create.argtypes = [_POINTER, _SIZE, ctypes.c_char_p, ctypes.c_char_p]
    if create(ctypes.byref(handle), instances, b"cpu", None) or handle.value is None:
        raise OSError("the compiled graph cannot be set up")
    return handle.value


def _count(ask: Any, handle: int) -> int:
    found = _SIZE()
    ask.argtypes = [_POINTER, _POINTER]
    _require(ask(handle, ctypes.byref(found)))
    return found.value


def _require(code: int) -> None:
    if code:
        raise RuntimeError("torch refuses")  # its own texts quote values
