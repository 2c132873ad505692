"""The model in the store: what is served, who is at work, what is left over, and whether the next one fits."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from batch_job.doctor.finding import Check, Verdict, failure, mebibytes, note, nothing_active, ok, warning
from batch_job.doctor.server import Server, headroom
from batch_job.nights import max_age
from batch_job.schedule import Nights
from batch_job.schedule_health import stamp
from shared.layout import sizes
from shared.snapshot import ENTITIES_PER_BUCKET, Active, Listed, SnapshotMeta, SnapshotState
from shared.store.probe import Measured

USUAL_BYTES = 25.0
"""Memory of one entity with one score, as measured with 500,000 of them; 4 bytes for each score more."""

USUAL_LIMIT = 128
"""Both servers' own hash-max-listpack-entries. Ids spread by chance: no bucket of 48 on average comes near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model's keys on a server."""

    server: Server
    active: Active | None
    listed: tuple[Listed, ...]
    measured: Measured | None

    @property
    def served(self) -> SnapshotMeta:
        """The active snapshot; NotLooked where there is none to look at."""
        if self.active is None:
            raise nothing_active()
        return self.active.meta


def look_at(server: Server) -> Model:
    """Asks once what all checks need; StoreError where it is refused, or is not as it was written."""
    catalogue = server.probe.catalogue
    active = catalogue.active()
    measured = None if active is None else server.probe.measure(active.meta)
    return Model(server=server, active=active, listed=tuple(catalogue.snapshots()), measured=measured)


def pointer(model: Model) -> Iterator[Verdict]:
    if model.active is None:
        yield warning(
            f"model {model.server.probe.names.model} has no active snapshot: all are scored online",
            "run: forescore backfill",
        )
        return
    meta = model.active.meta
    told = f"{meta.snapshot} is active since epoch {model.active.epoch}: {meta.published:,} entities"
    if meta.unfinished is not None:
        yield warning(
            f"{told}; run {meta.unfinished.run[:12]} wrote into it and did not end", "run the same backfill again"
        )
    else:
        yield ok(told)


def buckets_there(model: Model) -> Iterator[Verdict]:
    meta, measured = model.served, model.measured
    if measured is None:
        yield failure(
            f"none of the buckets of {meta.snapshot} that were looked at could be read",
            "the store lost keys, or this user may not read them: backfill with --force, or see docs/security.md",
        )
        return
    told = f"{measured.buckets} buckets of {meta.buckets:,}: {measured.bytes_per_entity:.1f} bytes an entity"
    if measured.encodings <= {"listpack", "unknown"}:
        yield ok(f"{told}, kept as {', '.join(sorted(measured.encodings))}")
    else:
        kept = ", ".join(sorted(measured.encodings))
        yield warning(f"{told}, kept as {kept}, which takes several times the memory of listpack", _LISTPACK)


def listpack_limits(model: Model) -> Iterator[Verdict]:
    server = model.server
    entries, value = server.number("hash-max-listpack-entries"), server.number("hash-max-listpack-value")
    longest = max(sizes(len(model.active.meta.columns))) if model.active is not None else max(sizes(1))
    told = f"entries {entries:.0f} for {ENTITIES_PER_BUCKET} on average, value {value:.0f} for {longest} bytes"
    yield warning(told, _LISTPACK) if entries < USUAL_LIMIT or value < longest else ok(told)


def room(model: Model) -> Iterator[Verdict]:
    meta = model.served
    each = USUAL_BYTES + 4 * (len(meta.columns) - 1) if model.measured is None else model.measured.bytes_per_entity
    size = each * meta.published
    how = "usual" if model.measured is None else "measured"
    nodes = model.server.nodes.values()
    limits, free = sum(int(info.get("maxmemory", 0)) for info in nodes), sum(map(headroom, nodes))
    told = f"the active snapshot takes {mebibytes(size)} ({each:.1f} bytes an entity, {how})"
    step = f"raise maxmemory to {mebibytes(3 * size)} at least, or retire snapshots: forescore snapshots"
    if limits and limits < 2 * size:
        yield failure(f"{told}, and maxmemory is {mebibytes(limits)}: two of them do not fit", step)
    elif free < size:
        yield failure(f"{told}, and {mebibytes(max(0, free))} are free: the next one does not fit beside it", step)
    elif limits:
        yield ok(f"{told}, and {mebibytes(free)} are free")
    else:
        yield ok(f"{told}; the store has no limit")


def age(model: Model) -> Iterator[Verdict]:
    schedule, now = model.server.settings.schedule, model.server.wall.now()
    nights = Nights(schedule.cron, schedule.timezone)
    limit = max_age(nights, datetime.fromtimestamp(now, UTC), schedule.max_age_seconds)
    old = now - model.served.scored_at
    told = f"scored {old:,.0f} s ago, at {stamp(model.served.scored_at)}; the alarm is at {limit:,.0f} s"
    step = "see the schedule: forescore schedule --show; or backfill now"
    yield failure(told, step) if old > limit else ok(told)


def lease(model: Model) -> Iterator[Verdict]:
    probe = model.server.probe
    holder, left = probe.holder, probe.lease_seconds_left()
    if holder is None or left is None:
        yield ok("nobody holds it")
    elif left == float("inf"):
        yield failure(f"held by {holder}, and never lapses", f"is it at work? if not: DEL {probe.names.lease()}")
    else:
        yield note(f"held by {holder}, lapses in {left:.1f} s unless renewed", "it is at work, or ended just now")


def left_over(model: Model) -> Iterator[Verdict]:
    by_state = {state: [row.meta.snapshot for row in model.listed if row.state is state] for state in SnapshotState}
    at_work = model.server.probe.holder is not None
    if held := by_state[SnapshotState.HELD]:
        yield warning(
            f"held for review: {', '.join(held)}", "see the run's report; then forescore promote --force, or retire"
        )
    if halves := [*by_state[SnapshotState.WRITING], *by_state[SnapshotState.RETIRING]]:
        told = f"half-written or half-removed: {', '.join(halves)}"
        if at_work:
            yield note(f"{told}; somebody is at work", "look again when it is done")
        else:
            yield warning(told, "run the same backfill again, or forescore retire --force")
    if not held and not halves:
        yield ok(f"{len(model.listed)} snapshots, all of them whole")


def history(model: Model) -> Iterator[Verdict]:
    flips = model.server.probe.catalogue.history()
    if not flips:
        yield (
            note("the pointer was never flipped")
            if model.active is None
            else warning(
                "the history is lost: rollback has nowhere to go", "the store dropped a key: see its eviction policy"
            )
        )
        return
    last = flips[0]
    forced = ", forced over a gate" if last.forced else ""
    told = f"{len(flips)} flips; the last at {stamp(last.at)}: {last.action} of {last.snapshot} by {last.by}{forced}"
    behind = [row for row in model.listed if row.state is SnapshotState.READY and not row.active]
    if behind:
        yield ok(f"{told}; {len(behind)} to go back to")
    else:
        yield note(f"{told}; none to go back to", "after the next run there is one, with FORESCORE_GATES__KEEP of 2")


_LISTPACK = f"CONFIG SET hash-max-listpack-entries {USUAL_LIMIT}, hash-max-listpack-value 64 or more; then publish anew"

CHECKS: tuple[Check[Model], ...] = (
    Check("pointer", "the active snapshot and its epoch", pointer),
    Check("buckets", "MEMORY USAGE, OBJECT ENCODING and HGETALL of some buckets", buckets_there),
    Check("listpack limits", "CONFIG GET hash-max-listpack-*", listpack_limits),
    Check("room for two", "maxmemory, used memory, and the active snapshot", room),
    Check("age", "the active snapshot, FORESCORE_SCHEDULE__CRON, __MAX_AGE_SECONDS", age),
    Check("lease", "who publishes", lease),
    Check("left over", "the states of all snapshots", left_over),
    Check("history", "the flips of the pointer", history),
)
