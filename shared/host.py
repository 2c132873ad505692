"""What this machine is: what compiled code depends on, and how much can be done at once."""

import os
import platform
import re
import shutil
import sys
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_LINE = re.compile(r"^(model name|flags|Features|CPU part)\s*:\s*(.*)$", re.MULTILINE)


def processor() -> str:
    """The processor by name and by the instructions it has: code that is compiled for one may not run on another."""
    facts = {"machine": platform.machine(), "system": platform.system()}
    if _CPUINFO.exists():
        for name, value in _LINE.findall(_CPUINFO.read_text(errors="replace")):
            facts.setdefault(name, " ".join(sorted(value.split())) if name in {"flags", "Features"} else value)
    else:
        facts["model name"] = platform.processor()
    return "; ".join(f"{name}={value}" for name, value in sorted(facts.items()))


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compiler() -> str | None:
    """The C++ compiler's path: that of CXX, else the platform's usual one. None where there is none."""
    return shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++"))
