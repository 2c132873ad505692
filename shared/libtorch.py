"""torch's library by its own C interface, without torch's Python package, which takes seconds to import.

It is the same library that the package loads: where a process has both, they share its threads and its state.
The functions are those that AOTInductor's code itself is linked against, and change only together with it.
https://github.com/pytorch/pytorch/blob/main/torch/csrc/inductor/aoti_torch/c/shim.h
"""

import ctypes
import os
import sys
from functools import lru_cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

_NAME = "libtorch_cpu.dylib" if sys.platform == "darwin" else "libtorch_cpu.so"
_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64
_INTERFACE = {
    "aoti_torch_create_tensor_from_blob": [
        *(_POINTER, _INTEGER, _POINTER, _POINTER, _INTEGER),
        *(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, _POINTER),
    ],
    "aoti_torch_delete_tensor_object": [_POINTER],
    "aoti_torch_get_data_ptr": [_POINTER, _POINTER],
    "aoti_torch_get_dim": [_POINTER, _POINTER],
    "aoti_torch_get_dtype": [_POINTER, _POINTER],
    "aoti_torch_get_numel": [_POINTER, _POINTER],
    "aoti_torch_get_sizes": [_POINTER, _POINTER],
    "aoti_torch_get_strides": [_POINTER, _POINTER],
    "aoti_torch_new_tensor_handle": [_POINTER, _POINTER],
    "torch_get_num_threads": [_POINTER],
}


@lru_cache(maxsize=1)
def libtorch() -> ctypes.PyDLL:
    """The library. Its calls take less than letting go of the interpreter would.

    OSError, or AttributeError, where this torch has no such library or interface.
    """
    path = str(_package() / "lib" / _NAME)
    _preload(path)
    try:
        library = ctypes.PyDLL(path)
    except OSError:  # it needs libraries that only the package finds, as those of CUDA
        import torch  # noqa: F401, PLC0415 - see above

        library = ctypes.PyDLL(path)
    for name, arguments in _INTERFACE.items():
        getattr(library, name).argtypes = arguments
    return library


@lru_cache(maxsize=1)
def torch_build() -> tuple[str, str]:
    """The version of torch, and the revision that it was built from."""
    facts = _facts()
    return facts.__version__, facts.git_version


def has_accelerators() -> bool:
    """Whether this torch was built for more than CPUs."""
    facts = _facts()
    return any(getattr(facts, name, None) is not None for name in ("cuda", "hip", "xpu"))


def threads_in_use() -> int:
    """How many threads a pass uses. It also settles that for the thread that asks: one that has never asked would take
    all cores for one small product."""
    found = ctypes.c_uint32()
    libtorch().torch_get_num_threads(ctypes.byref(found))
    return found.value


def use_threads(number: int) -> None:
    """Settles it for the process: ``at::set_num_threads``, which torch's own Python calls."""
    libtorch()["_ZN2at15set_num_threadsEi"](number)


def _preload(path: str) -> None:
    """Loads the library, if it can be, as a call that lets go of the interpreter: it takes most of half a second, in
    which other threads work. ``ctypes`` itself holds on to it while it loads. That it cannot be is found there."""
    load = ctypes.CDLL(None).dlopen
    load.argtypes, load.restype = [ctypes.c_char_p, ctypes.c_int], _POINTER
    load(os.fsencode(path), os.RTLD_NOW)


def _package() -> Path:
    spec = find_spec("torch")  # finds, and does not import
    if spec is None or spec.origin is None:
        raise OSError("torch is not installed")
    return Path(spec.origin).parent


@lru_cache(maxsize=1)
def _facts() -> ModuleType:
    """``torch/version.py``, which holds nothing else."""
    spec = spec_from_file_location("_torch_version", _package() / "version.py")
    if spec is None or spec.loader is None:
        raise OSError("torch does not say its version")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
