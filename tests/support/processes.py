"""What the kernel says about processes that a test started."""

import os
from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """The processes that it started and that still are there, in the order of their start."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(stat.parent.name)] = int(parent)
    return sorted(child for child, parent in found.items() if parent == pid)


def runs(pid: int) -> bool:
    """Whether it still is at work: one that has ended and whom nobody asked about is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def maps(pid: int, library: str) -> bool:
    """Whether a library with that in its name is in the process's memory."""
    return library in Path(f"/proc/{pid}/maps").read_text()


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def servers_in(home: Path) -> list[int]:
    """The embedded servers of a home that run."""
    found = [
        int(entry.name) for entry in Path("/proc").glob("[0-9]*") if f"{home}/store" in command_of(int(entry.name))
    ]
    return [pid for pid in found if pid != os.getpid() and runs(pid)]
