"""The address of a store: one setting, five forms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis.connection import parse_url

from shared.errors import SettingsError

_SETTING = "FORESCORE_REDIS__URL"
_FORMS = "redis://, rediss://, unix://, redis+sentinel://host:port,host:port/service or redis+cluster://host:port"


class Kind(Enum):
    PLAIN = "plain"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed URL. ``where`` names the server in messages, without user and password.

    ``url`` is for plain servers. The others have ``hosts`` (sentinels, or nodes of the cluster), ``options`` of the
    data nodes, and ``sentinel_options`` of the sentinels.
    """

    kind: Kind
    where: str
    url: str = field(default="", repr=False)
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sentinel_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def parse(url: str) -> Address:
    """Reads the URL; SettingsError says which rule it breaks, and never repeats it: it may hold a password."""
    try:
        parts = urlsplit(url)
        if parts.scheme in {"redis", "rediss", "unix"}:
            return Address(kind=Kind.PLAIN, where=_plain_name(url), url=url)
        if parts.scheme in {"redis+sentinel", "rediss+sentinel"}:
            return _sentinel(parts)
        if parts.scheme in {"redis+cluster", "rediss+cluster"}:
            return _cluster(parts)
    except ValueError:
        raise SettingsError(f"{_SETTING}: a port, a database or an option in it is not of its kind") from None
    raise SettingsError(f"{_SETTING}: it must have the form {_FORMS}")


def _plain_name(url: str) -> str:
    options = parse_url(url)  # type: ignore[no-untyped-call]
    if "path" in options:
        return str(options["path"])
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


def _sentinel(parts: SplitResult) -> Address:
    service = unquote(parts.path.strip("/"))
    if not service:
        raise SettingsError(f"{_SETTING}: name the service behind the sentinels: redis+sentinel://host:port/service")
    hosts = _hosts(parts, 26379)
    query = dict(parse_qsl(parts.query))
    sentinel = {name.removeprefix("sentinel_"): query.pop(name) for name in list(query) if name.startswith("sentinel_")}
    return Address(
        kind=Kind.SENTINEL,
        where=f"{service} behind {_named(hosts)}",
        hosts=hosts,
        service=service,
        options={**_options(parts, query), "db": int(query.get("db", 0))},
        sentinel_options={**sentinel, **_security(parts)},
    )


def _cluster(parts: SplitResult) -> Address:
    hosts = _hosts(parts, 6379)
    query = dict(parse_qsl(parts.query))
    if parts.path.strip("/") or "db" in query:
        raise SettingsError(f"{_SETTING}: a cluster has one database; leave the path and db out")
    return Address(kind=Kind.CLUSTER, where=f"cluster {_named(hosts)}", hosts=hosts, options=_options(parts, query))


def _options(parts: SplitResult, query: Mapping[str, str]) -> dict[str, Any]:
    allowed = {"db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs"}
    if not query.keys() <= allowed:
        raise SettingsError(f"{_SETTING}: an option in it is not known; known are {', '.join(sorted(allowed))}")
    given = {name: text for name, text in query.items() if name != "db"}
    return {**given, **_credentials(parts), **_security(parts)}


def _credentials(parts: SplitResult) -> dict[str, str]:
    login, separator, _ = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    named = {"username": unquote(user), "password": unquote(password)} if separator else {}
    return {name: text for name, text in named.items() if text}


def _security(parts: SplitResult) -> dict[str, bool]:
    return {"ssl": True} if parts.scheme.startswith("rediss") else {}


def _hosts(parts: SplitResult, default_port: int) -> tuple[tuple[str, int], ...]:
    texts = parts.netloc.rpartition("@")[2].split(",")
    hosts = [urlsplit(f"//{text}") for text in texts]
    if not all(host.hostname for host in hosts):
        raise SettingsError(f"{_SETTING}: it names no host, or leaves one out between two commas")
    return tuple((str(host.hostname), host.port or default_port) for host in hosts)


def _named(hosts: tuple[tuple[str, int], ...]) -> str:
    return ",".join(f"{host}:{port}" for host, port in hosts)
