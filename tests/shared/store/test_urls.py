"""The address of a store."""

import pytest

from shared.errors import SettingsError
from shared.store.urls import Kind, parse


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://cache", "cache:6379"),
        ("redis://user:sesame@cache:7000/2", "cache:7000"),
        ("rediss://:sesame@cache:7000", "cache:7000"),
        ("unix:///run/valkey.sock?db=1", "/run/valkey.sock"),
    ],
)
def test_a_plain_server(url: str, where: str) -> None:
    """Its name in messages has neither user nor password."""
    address = parse(url)
    assert (address.kind, address.where) == (Kind.PLAIN, where)
    assert "sesame" not in repr(address)


def test_sentinels() -> None:
    """Credentials and database are the data nodes'; what begins with sentinel_ is the sentinels'."""
    address = parse("redis+sentinel://user:se%20same@a:1,b/main?db=3&sentinel_password=other")
    assert (address.kind, address.hosts, address.service) == (Kind.SENTINEL, (("a", 1), ("b", 26379)), "main")
    assert address.options == {"username": "user", "password": "se same", "db": 3}
    assert address.sentinel_options == {"password": "other"}
    assert address.where == "main behind a:1,b:26379"


def test_a_cluster() -> None:
    """Some of its nodes are enough."""
    address = parse("rediss+cluster://:sesame@a:1,b?ssl_ca_certs=/ca.pem")
    assert (address.kind, address.hosts) == (Kind.CLUSTER, (("a", 1), ("b", 6379)))
    assert address.options == {"password": "sesame", "ssl": True, "ssl_ca_certs": "/ca.pem"}


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("", "must have the form"),
        ("http://sesame", "must have the form"),
        ("sesame:6379", "must have the form"),
        ("redis+other://sesame", "must have the form"),
        ("redis://host:sesame", "is not of its kind"),
        ("redis://host?socket_timeout=sesame", "is not of its kind"),
        ("redis+sentinel://host:sesame/main", "is not of its kind"),
        ("redis+sentinel://host/main?db=sesame", "is not of its kind"),
        ("redis+sentinel://sesame", "name the service"),
        ("redis+sentinel://sesame,/main", "names no host"),
        ("redis+cluster://", "names no host"),
        ("redis+cluster://sesame/1", "one database"),
        ("redis+cluster://host?sesame=1", "not known"),
    ],
)
def test_a_wrong_address_is_refused_without_repeating_it(url: str, rule: str) -> None:
    """The error names the variable and the rule; what was given may hold a password."""
    with pytest.raises(SettingsError, match=rule) as caught:
        parse(url)
    assert "FORESCORE_REDIS__URL" in str(caught.value)
    assert "sesame" not in str(caught.value)
    assert caught.value.__cause__ is None
