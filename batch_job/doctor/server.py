"""Redis or Valkey itself."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from batch_job.doctor.finding import Check, Verdict, failure, mebibytes, not_told, note, ok, warning
from shared.clock import Clock
from shared.settings import Settings
from shared.store.findings import OLDEST_REDIS
from shared.store.probe import Info, Probe

SKEW_SECONDS = 1.0
FAR_SECONDS = 30.0
IDLE_SECONDS = 60
FRAGMENTATION = 1.5
FRAGMENTED_BYTES = 64 * 1024**2
CROWDED = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that answers, and what it told of itself once."""

    settings: Settings
    probe: Probe
    wall: Clock
    stopwatch: Clock
    told: Mapping[str, Info] | None
    config: Mapping[str, str] | None

    @property
    def nodes(self) -> Mapping[str, Info]:
        """INFO by node."""
        if self.told is None:
            raise not_told("INFO")
        return self.told

    def number(self, name: str) -> float:
        """One number of its configuration."""
        if self.config is None or name not in self.config:
            raise not_told("CONFIG GET")
        return float(self.config[name])


def version(_: Server, info: Info) -> Iterator[Verdict]:
    spoken = str(info.get("redis_version", "unknown"))
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {spoken}"
    major = spoken.partition(".")[0]
    if major.isdigit() and int(major) < OLDEST_REDIS:
        yield failure(f"{name} speaks the protocol of Redis {spoken}", "Redis 7 or Valkey 8 is needed: upgrade it")
    else:
        yield ok(f"{name}, up for {int(info.get('uptime_in_seconds', 0)):,} s")


def answer_time(server: Server) -> Iterator[Verdict]:
    seconds = server.probe.round_trip_seconds(server.stopwatch)
    limit = server.settings.redis.read_timeout_ms / 1000
    told = f"a round trip takes {seconds * 1000:.2f} ms; a look-up waits {limit * 1000:.0f} ms for one"
    step = "bring the store nearer, or raise FORESCORE_REDIS__READ_TIMEOUT_MS"
    if seconds >= limit:
        yield failure(told, step)
    elif seconds >= limit / 2:
        yield warning(told, step)
    else:
        yield ok(told)


def eviction(_: Server, info: Info) -> Iterator[Verdict]:
    policy, evicted = str(info.get("maxmemory_policy", "unknown")), int(info.get("evicted_keys", 0))
    told = f"maxmemory-policy {policy}, {evicted:,} keys evicted since it started"
    if policy.startswith("allkeys-"):
        yield failure(told, "when it is full it drops scores and the pointer: CONFIG SET maxmemory-policy noeviction")
    elif policy.startswith("volatile-"):
        yield note(
            f"{told}: what expires may be dropped when it is full, which are the publishing lease (that run then "
            "fails, fenced) and features put by callers; scores and the pointer do not expire and stay",
            "noeviction refuses the writer instead",
        )
    else:
        yield ok(told)


def memory(_: Server, info: Info) -> Iterator[Verdict]:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    machine = int(info.get("total_system_memory", 0))
    if limit:
        told = f"{mebibytes(used)} of {mebibytes(limit)} are used"
        step = "raise maxmemory, or retire snapshots (FORESCORE_GATES__KEEP)"
        yield warning(told, step) if used > CROWDED * limit else ok(told)
    else:
        told = f"{mebibytes(used)} are used, without a limit, on a machine of {mebibytes(machine)}"
        yield note(told, "set maxmemory below the machine's, so that the kernel never ends the server for its size")


def fragmentation(_: Server, info: Info) -> Iterator[Verdict]:
    ratio, lost = float(info.get("mem_fragmentation_ratio", 1)), int(info.get("mem_fragmentation_bytes", 0))
    told = f"fragmentation {ratio:.2f}, {mebibytes(max(0, lost))}"
    if ratio > FRAGMENTATION and lost > FRAGMENTED_BYTES:
        yield warning(told, "CONFIG SET activedefrag yes, or restart it when another one serves")
    elif 0 < ratio < 1 and lost < -FRAGMENTED_BYTES:
        yield warning(f"{told}: a part of it is swapped out", "give the machine more memory, or turn swap off")
    else:
        yield ok(told)


def persistence(server: Server, info: Info) -> Iterator[Verdict]:
    saved, written = str(info.get("rdb_last_bgsave_status", "ok")), str(info.get("aof_last_write_status", "ok"))
    stops = server.config is None or server.config.get("stop-writes-on-bgsave-error") != "no"
    told = f"last snapshot to disk: {saved}; append-only file: {_appended(info)}, last write: {written}"
    step = "make room on its disk and see its log; then BGSAVE"
    if written != "ok" or (saved != "ok" and stops):
        yield failure(f"{told}: it refuses writes for that, so no run can publish", step)
    elif saved != "ok" or str(info.get("aof_last_bgrewrite_status", "ok")) != "ok":
        yield warning(told, step)
    else:
        yield ok(told)


def role(_: Server, info: Info) -> Iterator[Verdict]:
    found = str(info.get("role", "unknown"))
    if found == "slave":
        told = f"it is a read-only replica of {info.get('master_host')}, link {info.get('master_link_status')}"
        yield failure(told, "give FORESCORE_REDIS__URL the primary's address, or its sentinels': redis+sentinel://")
    else:
        yield ok(f"role {found}, {info.get('connected_slaves', 0)} replicas")


def connections(_: Server, info: Info) -> Iterator[Verdict]:
    there, most = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
    told = f"{there:,} of {most:,} clients are connected, {int(info.get('rejected_connections', 0)):,} were refused"
    if most and there > CROWDED * most:
        yield warning(told, "raise its maxclients, or lower FORESCORE_REDIS__READ_CONNECTIONS")
    else:
        yield ok(told)


def idle_connections(server: Server) -> Iterator[Verdict]:
    idle, alive = server.number("timeout"), server.number("tcp-keepalive")
    told = f"timeout {idle:.0f} s, tcp-keepalive {alive:.0f} s"
    if 0 < idle < IDLE_SECONDS:
        yield warning(f"{told}: a quiet service is cut off, and connects anew", "CONFIG SET timeout 0")
    elif alive == 0:
        yield warning(f"{told}: connections of dead hosts stay open", "CONFIG SET tcp-keepalive 300")
    else:
        yield ok(told)


def clock_skew(server: Server) -> Iterator[Verdict]:
    ahead = server.probe.clock_ahead_seconds(server.wall)
    if ahead is None:
        raise not_told("TIME")
    told = f"the store's clock is {abs(ahead):.3f} s {'ahead of' if ahead >= 0 else 'behind'} this host's"
    step = "let NTP set both clocks: the age of scores is told by this host's"
    if abs(ahead) >= FAR_SECONDS:
        yield failure(told, step)
    elif abs(ahead) >= SKEW_SECONDS:
        yield warning(told, step)
    else:
        yield ok(told)


def _appended(info: Info) -> str:
    return "on" if int(info.get("aof_enabled", 0)) else "off"


def _each_node(look: Callable[[Server, Info], Iterator[Verdict]], server: Server) -> Iterator[Verdict]:
    """The verdict on every node of a cluster; one that holds for all of them is told once."""
    several = len(server.nodes) > 1
    found: dict[Verdict, list[str]] = {}
    for name, info in server.nodes.items():
        for verdict in look(server, info):
            found.setdefault(verdict, []).append(name)
    for verdict, names in found.items():
        of_nodes = f"{', '.join(names)}: " if several and len(names) < len(server.nodes) else ""
        yield Verdict(verdict.level, f"{of_nodes}{verdict.found}", verdict.next_step)


def headroom(info: Info) -> float:
    """Bytes that may still be written."""
    limit = int(info.get("maxmemory", 0))
    return limit - int(info.get("used_memory", 0)) if limit else math.inf


def _of_nodes(name: str, section: str, look: Callable[[Server, Info], Iterator[Verdict]]) -> Check[Server]:
    return Check(name, f"INFO {section}", partial(_each_node, look))


CHECKS: tuple[Check[Server], ...] = (
    _of_nodes("version", "server", version),
    Check("answer time", "PING, FORESCORE_REDIS__READ_TIMEOUT_MS", answer_time),
    _of_nodes("eviction", "memory", eviction),
    _of_nodes("memory", "memory", memory),
    _of_nodes("fragmentation", "memory", fragmentation),
    _of_nodes("persistence", "persistence", persistence),
    _of_nodes("role", "replication", role),
    _of_nodes("connections", "clients", connections),
    Check("idle connections", "CONFIG GET timeout, tcp-keepalive", idle_connections),
    Check("clock skew", "TIME, and this host's clock", clock_skew),
)
