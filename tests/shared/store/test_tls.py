"""TLS to the store: real handshakes before a real Valkey, whose own binary has no TLS."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from support.servers import ValkeyProcess
from support.snapshots import load, promote, snapshot_meta
from support.stores import settings_for
from support.tls import HOST, Authority, tls_end

from shared.errors import StoreDown
from shared.snapshot import Absent, Found, Lookup
from shared.store.connect import open_async_store, open_store


@dataclass(frozen=True)
class Ends:
    """Ports before one server: any caller's, and one for callers that show a certificate."""

    ours: Authority
    other: Authority
    open: int
    mutual: int
    misnamed: int


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory, valkey: ValkeyProcess) -> Iterator[Ends]:
    folder = tmp_path_factory.mktemp("tls")
    ours, other = Authority.new(folder / "ours"), Authority.new(folder / "other")
    host, elsewhere = ours.signed(HOST), ours.signed("elsewhere.example")
    ours.signed("client.example")
    other.signed("client.example")
    with (
        tls_end(valkey.port, host) as plain,
        tls_end(valkey.port, host, clients=ours) as mutual,
        tls_end(valkey.port, elsewhere) as misnamed,
    ):
        yield Ends(ours, other, plain, mutual, misnamed)


def url(port: int, trusted: Path | None, client: Path | None = None, scheme: str = "rediss") -> str:
    options = {} if trusted is None else {"ssl_ca_certs": trusted}
    if client is not None:
        options |= {"ssl_certfile": client, "ssl_keyfile": client.with_suffix(".key")}
    query = "&".join(f"{name}={quote(str(path))}" for name, path in options.items())
    return f"{scheme}://{HOST}:{port}?{query}"


def asked(address: str, namespace: str) -> list[Lookup]:
    """Publishes with a writer's client, and looks up with a reader's."""
    settings = settings_for(address, namespace)
    with open_store(settings, "churn") as store:
        meta = load(store, snapshot_meta(entities=1), {"a": 0.5})
        promote(store, meta.snapshot)

    async def read() -> list[Lookup]:
        async with open_async_store(settings, "churn") as store:
            active = await store.reader.active()
            assert active is not None
            return await store.reader.lookup(active.meta, ["a", "b"])

    return asyncio.run(read())


def test_both_sides_speak_tls(ends: Ends, namespace: str) -> None:
    """With a named authority, scores go in and come out through TLS, on the writer's and on the reader's connection."""
    found, absent = asked(url(ends.open, ends.ours.certificate), namespace)
    assert isinstance(found, Found)
    assert found.scores == (0.5,)
    assert isinstance(absent, Absent)


def test_a_client_shows_its_certificate(ends: Ends, namespace: str) -> None:
    """A server that asks for one gets the one in the URL."""
    client = ends.ours.folder / "client.example.pem"
    assert isinstance(asked(url(ends.mutual, ends.ours.certificate, client), namespace)[0], Found)


@pytest.mark.parametrize("who", ["unknown authority", "no authority", "another name", "no certificate", "a stranger"])
def test_nobody_else_is_spoken_to(ends: Ends, namespace: str, who: str) -> None:
    """A server that cannot prove its name, or a caller that cannot prove his, ends as a store that is not reached."""
    stranger = ends.other.folder / "client.example.pem"
    addresses = {
        "unknown authority": url(ends.open, ends.other.certificate),
        "no authority": url(ends.open, None),
        "another name": url(ends.misnamed, ends.ours.certificate),
        "no certificate": url(ends.mutual, ends.ours.certificate),
        "a stranger": url(ends.mutual, ends.ours.certificate, stranger),
    }
    settings = settings_for(addresses[who], namespace)
    with pytest.raises(StoreDown), open_store(settings, "churn") as store:
        store.catalogue.active()

    async def read() -> None:
        async with open_async_store(settings, "churn") as reading:
            await reading.reader.active()

    with pytest.raises(StoreDown):
        asyncio.run(read())


def test_a_server_without_tls_is_told(valkey: ValkeyProcess, ends: Ends, namespace: str) -> None:
    """TLS where there is none, and none where there is, end as what they are: the store is not reached."""
    for address in (url(valkey.port, ends.ours.certificate), f"redis://{HOST}:{ends.open}"):
        settings = settings_for(
            address, namespace, write_timeout_seconds=1
        )  # a plain server waits for the end of a line
        with pytest.raises(StoreDown), open_store(settings, "churn") as store:
            store.catalogue.active()
