import json
import subprocess
import sys

import pytest

CALL = """
import asyncio, json, sys
from forescore import AsyncForescoreClient, ForescoreClient, Unreachable

def ask():
    with ForescoreClient("http://127.0.0.1:1") as client:
        client.score("a")

async def ask_async():
    async with AsyncForescoreClient("http://127.0.0.1:1") as client:
        await client.score("a")

for attempt in (ask, lambda: asyncio.run(ask_async())):
    try:
        attempt()
    except Unreachable:
        print(json.dumps(sorted(sys.modules)))
"""


def test_an_app_asks_cheaply() -> None:
    """To import the client and to call it loads none of the large libraries that scoring needs."""
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=True)
    modules = {module.partition(".")[0] for line in done.stdout.splitlines() for module in json.loads(line)}

    assert len(done.stdout.splitlines()) == 2
    assert not modules & {"torch", "pyarrow", "numpy", "redis", "fastapi", "pydantic", "service", "batch_job"}


@pytest.mark.parametrize("name", ["ForescoreClient", "AsyncForescoreClient"])
def test_without_its_extra_the_client_says_what_to_install(name: str) -> None:
    """Where httpx2 is not installed the import fails with one line that names the extra."""
    code = f"import sys; sys.modules['httpx2'] = None\nfrom forescore import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: the client of forescore needs httpx2; install it with: pip install 'forescore[client]'"
    )


def test_without_its_extra_the_rest_works() -> None:
    """The values and the errors need nothing, so that an app can speak of them where it does not ask."""
    code = "import sys; sys.modules['httpx2'] = None\nfrom forescore import Score, Problem, UnknownEntity, Item"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
