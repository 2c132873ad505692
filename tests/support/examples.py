"""The examples as modules: they are scripts, so they are loaded by their path."""

import fcntl
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from shared.build import build_from
from shared.bundle import Bundle, load_bundle

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_example(script: str) -> ModuleType:
    """The module of a script such as ``telco_churn/train.py``."""
    name = "example_" + script.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build_example(script: str, out: Path) -> Bundle:
    """The bundle that a script's ``bundle`` function describes."""
    return build_from(load_example(script).bundle(), out)


def built_once(script: str, folder: Path) -> Bundle:
    """The same, built by the first of the processes that run tests beside each other; ``folder`` is this one's own."""
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    out = shared / f"example-{script.partition('/')[0]}"
    with (shared / f"{out.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return load_bundle(out) if out.is_dir() else build_example(script, out)
