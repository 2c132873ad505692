"""The examples as modules: they are scripts, so they are loaded by their path."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from shared.build import build_from
from shared.bundle import Bundle

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
