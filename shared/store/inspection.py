"""One look at the store when a process starts: it costs seconds at most, and nothing that it meets is an error.

A store of our own needs none. What a user may not ask is not told: docs/security.md has what each may.
"""

import asyncio
from contextlib import AsyncExitStack, suppress

from shared.errors import StoreError
from shared.off_loop import off_loop
from shared.settings import Settings
from shared.store.clients import async_client, sync_client
from shared.store.connect import address_of
from shared.store.failures import translated
from shared.store.findings import Finding, findings_of, tell

SECONDS = 2.0
"""For the connection, and for the reply."""
_CONNECTIONS = 2


def warn_of_store(settings: Settings) -> None:
    """Logs what is set up badly, for the commands. How the store is down is told by who needs it."""
    with suppress(StoreError):
        tell(store_findings(settings))


async def warn_of_store_soon(settings: Settings) -> None:
    """The same for the service, beside everything else that it does."""
    with suppress(StoreError):
        tell(await _async_findings(settings))


def store_findings(settings: Settings) -> list[Finding]:
    """What to tell the operator about the server; empty if it is set up well. StoreError where it does not say."""
    if settings.redis.url is None:
        return []
    seconds = min(SECONDS, settings.redis.write_timeout_seconds)
    with address_of(settings) as address, sync_client(address, seconds=seconds) as client, translated(address.where):
        return findings_of(client.info(), address.where)


async def _async_findings(settings: Settings) -> list[Finding]:
    if settings.redis.url is None:
        return []
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(off_loop(address_of(settings)))
        client = await stack.enter_async_context(async_client(address, seconds=SECONDS, connections=_CONNECTIONS))
        with translated(address.where):
            async with asyncio.timeout(SECONDS):
                return findings_of(await client.info(), address.where)
