"""What the service's and the batch job's users may do in the store: too little, and too much (see docs/security.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from batch_job.doctor.finding import Check, Verdict, failure, not_told, ok, warning
from shared.layout import Keys, models_key, rates_key
from shared.settings import Settings
from shared.store.probe import Probe

_SCRIPT = "return 1"
_Command = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """Who asks: ``reader`` is the service's user, ``writer`` the batch job's; None: that of this connection."""

    settings: Settings
    probe: Probe
    reader: str | None
    writer: str | None

    def named(self, name: str | None) -> str:
        """The user's name, as the server knows it."""
        found = name or self.probe.user()
        if found is None:
            raise not_told("ACL WHOAMI")
        return found


def needed_by_reader(settings: Settings, keys: Keys) -> dict[str, _Command]:
    """One command for each thing that the service does."""
    bucket, features = keys.bucket("0-0", 0), keys.features("0")
    wanted: dict[str, _Command] = {
        "ask whether it is there": ("PING",),
        "read the pointer": ("EVAL_RO", _SCRIPT, 2, keys.active(), keys.snapshots()),
        "read a score": ("HMGET", bucket, "0", ""),
        "list snapshots": ("HGETALL", keys.snapshots()),
        "look at the server": ("INFO",),
    }
    if settings.service.write_back:
        wanted["write a score back"] = ("EVAL", _SCRIPT, 1, bucket)
        wanted["write a field back"] = ("HSET", bucket, "0", "0")
    if "store" in settings.features.url.get_secret_value().split(","):
        wanted["read features"] = ("GET", features)
        wanted["put features"] = ("SET", features, "0", "EX", 1)
        wanted["forget features"] = ("DEL", features)
    if settings.limits.are_shared:
        wanted |= _needed_for_rates(f"{rates_key(keys.namespace)}:{{0}}")
    return wanted


def _needed_for_rates(key: str) -> dict[str, _Command]:
    """The scripts that count, and each command in them."""
    return {
        "find the script of rates": ("EVALSHA", "0" * 40, 1, key),
        "load the script of rates": ("SCRIPT", "LOAD", _SCRIPT),
        "read a rate": ("GET", key),
        "read the end of a rate's window": ("PTTL", key),
        "look for a rate's window": ("EXISTS", key),
        "begin a rate's window": ("SET", key, 0, "PX", 1),
        "end a rate's window": ("RENAME", key, key),
        "count rows": ("INCRBY", key, 1),
    }


def needed_by_writer(keys: Keys) -> dict[str, _Command]:
    """One command for each thing that the batch job does."""
    bucket = keys.bucket("0-0", 0)
    return {
        "read the pointer": ("EVAL_RO", _SCRIPT, 2, keys.active(), keys.snapshots()),
        "claim a version": ("HSETNX", keys.versions(), "0", "0"),
        "take the lease": ("EVAL", _SCRIPT, 2, keys.lease(), keys.epoch()),
        "flip the pointer": ("EVAL", _SCRIPT, 1, keys.active()),
        "name the model": ("SADD", models_key(keys.namespace), keys.model),
        "write scores": ("HSET", bucket, "0", "0"),
        "count scores": ("HLEN", bucket),
        "read scores": ("HMGET", bucket, "0"),
        "copy scores": ("HGETALL", bucket),
        "remove a snapshot": ("UNLINK", bucket),
        "read the history": ("LRANGE", keys.history(), 0, -1),
        "load features": ("SET", keys.features("0"), "0", "EX", 1),
        "look at the server": ("INFO",),
    }


def denied_to_reader(keys: Keys) -> dict[str, _Command]:
    """What a service never does, so that whoever takes it over cannot either."""
    return {
        "flip the pointer": ("HSET", keys.active(), "snapshot", "0"),
        "take the lease": ("SET", keys.lease(), "0"),
        "remove a snapshot": ("UNLINK", keys.bucket("0-0", 0)),
        **denied_to_all(),
    }


def denied_to_all() -> dict[str, _Command]:
    """What neither does."""
    return {
        "empty the server": ("FLUSHALL",),
        "list all keys": ("KEYS", "*"),
        "configure the server": ("CONFIG", "SET", "maxmemory", "0"),
        "load code into the server": ("MODULE", "LIST"),
        "end the server": ("SHUTDOWN",),
    }


def reader_may(users: Users) -> Iterator[Verdict]:
    yield from _suffices(users, users.named(users.reader), needed_by_reader(users.settings, users.probe.names))


def writer_may(users: Users) -> Iterator[Verdict]:
    yield from _suffices(users, users.named(users.writer), needed_by_writer(users.probe.names))


def reader_may_not(users: Users) -> Iterator[Verdict]:
    yield from _bounded(users, users.named(users.reader), denied_to_reader(users.probe.names))


def writer_may_not(users: Users) -> Iterator[Verdict]:
    yield from _bounded(users, users.named(users.writer), denied_to_all())


def _suffices(users: Users, user: str, wanted: dict[str, _Command]) -> Iterator[Verdict]:
    refused = [what for what, command in wanted.items() if not _told(users, user, command)]
    if refused:
        yield failure(f"user {user} may not {', '.join(refused)}", "set its rules as docs/security.md says")
    else:
        yield ok(f"user {user} may do all of {len(wanted)} things")


def _bounded(users: Users, user: str, unwanted: dict[str, _Command]) -> Iterator[Verdict]:
    if users.settings.redis.url is None:
        yield ok(f"user {user} may do all; the embedded store is behind a socket that only this account may open")
        return
    allowed = [what for what, command in unwanted.items() if _told(users, user, command)]
    if allowed:
        yield warning(f"user {user} may also {', '.join(allowed)}", "give it the rules of docs/security.md")
    else:
        yield ok(f"user {user} may do none of {len(unwanted)} things that it never needs")


def _told(users: Users, user: str, command: Sequence[object]) -> bool:
    answer = users.probe.may(user, command)
    if answer is None:
        raise not_told("ACL DRYRUN")
    return answer


CHECKS: tuple[Check[Users], ...] = (
    Check("reader may", "ACL DRYRUN of what the service does", reader_may),
    Check("reader may not", "ACL DRYRUN of what the service never does", reader_may_not),
    Check("writer may", "ACL DRYRUN of what the batch job does", writer_may),
    Check("writer may not", "ACL DRYRUN of what the batch job never does", writer_may_not),
)
