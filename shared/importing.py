"""Functions of a user's own, named as ``MODULE:FUNCTION``."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shared.errors import ForescoreError, SettingsError


def is_import_path(text: str) -> bool:
    """Whether the text has the form ``package.module:function``."""
    module, colon, function = text.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def imported(text: str) -> Callable[..., Any]:
    """The function, with the working directory on the path; SettingsError says what is wrong with its name."""
    if not is_import_path(text):
        raise SettingsError(f"{text!r} is not MODULE:FUNCTION, as in train:bundle for the function bundle in train.py")
    module_name, _, name = text.partition(":")
    function = getattr(_module(module_name), name, None)
    if not callable(function):
        raise SettingsError(f"module {module_name} has no function {name}; define it, or name another")
    return function  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ForescoreError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise SettingsError(f"there is no module {name} in {here} or among the installed ones") from None
        raise SettingsError(f"module {name} imports {error.name}, which is not installed") from error
    except Exception as error:
        raise SettingsError(f"module {name} cannot be imported: {type(error).__name__}: {error}") from error
