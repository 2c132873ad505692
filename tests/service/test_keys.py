"""API keys: what a line may be, which key is found, and how a file of keys changes while it is used."""

import asyncio
import io
from hashlib import sha256
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from service.keyring import Keyring, read_keys
from service.keys import Access, Key, digest_of, find, new_key, parse_lines
from shared.errors import SettingsError
from shared.metrics import Metrics
from shared.settings import KeySettings
from shared.testing.clock import FrozenClock

DIGEST = sha256(b"fsk_one").hexdigest()
OTHER = sha256(b"fsk_two").hexdigest()


def test_a_line_is_read_as_it_is_written() -> None:
    """Name, scopes, digest and end come back; comments and empty lines are no keys."""
    keys = parse_lines(["# apps", "", f" app read,write {DIGEST} 2027-01-31T00:00:00Z ", f"prom admin {OTHER}"], "it")

    assert [key.name for key in keys] == ["app", "prom"]
    assert keys[0].scopes == {Access.READ, Access.WRITE}
    assert keys[0].line() == f"app read,write {DIGEST} 2027-01-31T00:00:00Z"
    assert keys[1].expires is None


@pytest.mark.parametrize(
    "line",
    [
        "app",
        "app read",
        f"app read {DIGEST[:-1]}",
        f"app read {DIGEST.upper()}",
        f"app all {DIGEST}",
        f"app  {DIGEST}",
        f"a/pp read {DIGEST}",
        f"{'x' * 65} read {DIGEST}",
        f"app read {DIGEST} tomorrow",
        f"app read {DIGEST} 2027-01-31 more",
        "fsk_a-key-in-plain-text read,write",
    ],
)
def test_a_line_that_cannot_be_is_named_and_not_repeated(line: str) -> None:
    """The error says where it is; a key that was put there by mistake must not come out in a log."""
    with pytest.raises(SettingsError, match="it, line 2") as raised:
        parse_lines([f"good read {OTHER}", line], "it")

    assert DIGEST not in str(raised.value)
    assert "plain-text" not in str(raised.value)


@pytest.mark.parametrize("lines", [[], ["# nothing"], [f"a read {DIGEST}", f"b write {DIGEST}"]])
def test_no_key_and_one_key_twice_are_refused(lines: list[str]) -> None:
    """A file that lets nobody in, or in which one key has two names, is a mistake."""
    with pytest.raises(SettingsError):
        parse_lines(lines, "it")


def test_a_made_key_is_found_and_nothing_else_is() -> None:
    """Each of several keys is found, wherever it stands; a part of one, or its digest, is none."""
    texts = [new_key() for _ in range(5)]
    keys = [
        Key(name=f"k{place}", scopes=frozenset({Access.READ}), digest=digest_of(text.encode()))
        for place, text in enumerate(texts)
    ]

    assert [getattr(find(keys, text.encode()), "name", None) for text in texts] == ["k0", "k1", "k2", "k3", "k4"]
    assert len(set(texts)) == 5
    for wrong in (b"", texts[0][:-1].encode(), texts[0].encode() + b"x", keys[0].digest, keys[0].digest.hex().encode()):
        assert find(keys, wrong) is None


def test_every_key_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time to find a key does not tell which it is: none is left out after the one that fits."""
    compared: list[bytes] = []
    monkeypatch.setattr("service.keys.hmac.compare_digest", lambda one, other: compared.append(one) or one == other)
    keys = parse_lines([f"a read {DIGEST}", f"b read {OTHER}"], "it")

    assert getattr(find(keys, b"fsk_one"), "name", None) == "a"
    assert compared == [keys[0].digest, keys[1].digest]


def test_a_key_ends_when_it_is_said_to() -> None:
    """It is found until its end, and not from then on."""
    clock = FrozenClock(1_700_000_000)
    ring = Keyring(KeySettings(lines=SecretStr(f"app read {DIGEST} 2023-11-15")), clock, Metrics(CollectorRegistry()))
    ring.read()

    assert ring.find(b"fsk_one") is not None
    clock.time = 1_700_006_400  # 2023-11-15T00:00:00Z
    assert ring.find(b"fsk_one") is None


def test_lines_and_file_hold_together(tmp_path: Path) -> None:
    """Inline lines are parted by semicolons or line breaks, and add to those of the file."""
    file = tmp_path / "keys"
    file.write_text(f"app read {DIGEST}\n", encoding="utf-8")
    inline = SecretStr(f"b write {OTHER};c admin {'0' * 64}")

    assert [key.name for key in read_keys(KeySettings(file=file, lines=inline))] == ["b", "c", "app"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"", b"x" * (2 * 1024 * 1024)])
def test_a_file_that_cannot_be_is_told(tmp_path: Path, content: bytes | None) -> None:
    """Not there, no text, empty, or far too long: one line that names it."""
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match="file of keys"):
        read_keys(KeySettings(file=file))


def test_a_changed_file_holds_and_a_broken_one_does_not(tmp_path: Path, log: io.StringIO) -> None:
    """New keys come in and old ones end with the file; while it is broken, those before hold, and the log says so."""
    file = tmp_path / "keys"
    file.write_text(f"app read {DIGEST}\n", encoding="utf-8")
    registry = CollectorRegistry()
    ring = Keyring(KeySettings(file=file), FrozenClock(), Metrics(registry))
    ring.read()
    found = []
    for content in (f"app read {DIGEST}\nb read {OTHER}\n", f"app read {DIGEST}\nb re", None, f"b read {OTHER}\n"):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content, encoding="utf-8")
        asyncio.run(ring.refresh())
        unread = registry.get_sample_value("forescore_keys_unread")
        found.append((ring.find(b"fsk_one") is not None, ring.find(b"fsk_two") is not None, unread))

    assert found == [(True, True, 0), (True, True, 1), (True, True, 1), (False, True, 0)]
    assert log.getvalue().count("keys not read, those before hold") == 2
    assert DIGEST not in log.getvalue()
