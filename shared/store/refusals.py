"""Why the pointer stays where it is, in one place for every store."""

from shared.errors import (
    BundleConflict,
    Fenced,
    LeaseHeld,
    SnapshotError,
    SnapshotHeld,
    SnapshotNotFound,
    SnapshotNotReady,
    StoreCorrupt,
)
from shared.snapshot import Lease


def conflict(model: str, version: str) -> BundleConflict:
    return BundleConflict(
        f"model {model}, version {version}: the store has this version from another bundle; give the new one its own"
    )


def of_another_run(snapshot: str) -> SnapshotError:
    return SnapshotError(f"snapshot {snapshot}: another run has it; start this run anew, and it gets its own")


def unknown(snapshot: str) -> SnapshotNotFound:
    return SnapshotNotFound(
        f"snapshot {snapshot}: the store does not have it; `forescore snapshots` lists those it has"
    )


def fenced(lease: Lease) -> Fenced:
    return Fenced(f"the publishing lease of {lease.holder} passed to somebody else or lapsed; nothing was changed")


def lease_held(holder: str) -> LeaseHeld:
    return LeaseHeld(
        f"the lease is held by {holder}; wait until it is done, or, if it died, until the lease lapses", holder=holder
    )


def nothing_before() -> SnapshotNotFound:
    return SnapshotNotFound("there is no earlier snapshot to roll back to; `forescore snapshots` lists those there are")


def not_promoted(outcome: str, snapshot: str, lease: Lease) -> SnapshotError:
    """For an outcome of ``scripts.PROMOTE``."""
    match outcome:
        case "fenced":
            return fenced(lease)
        case "missing":
            return unknown(snapshot)
        case "held":
            return SnapshotHeld(
                f"snapshot {snapshot}: a gate holds it back; see its report, and force it if it is right"
            )
        case _:
            return SnapshotNotReady(f"snapshot {snapshot}: it is {outcome}, so it is not whole; publish its run again")


def not_amended(outcome: str, snapshot: str, lease: Lease) -> SnapshotError:
    """For an outcome of ``scripts.AMEND``."""
    if outcome == "fenced":
        return fenced(lease)
    return SnapshotNotFound(f"snapshot {snapshot}: it is not the active one any more; `forescore snapshots` names that")


def bucket_gone(snapshot: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"snapshot {snapshot}: the store lost or changed a part of it; backfill the whole table with --force"
    )


def not_retired(outcome: str, snapshot: str) -> SnapshotError:
    """For an outcome of ``scripts.RETIRING``."""
    match outcome:
        case "missing":
            return unknown(snapshot)
        case "active":
            return SnapshotError(f"snapshot {snapshot}: it is active; promote another one first")
        case "held":
            return SnapshotError(f"snapshot {snapshot}: it is held for review; promote it, or force its removal")
        case _:
            return SnapshotError(
                f"snapshot {snapshot}: it is half-written; publish its run again, or force its removal"
            )
