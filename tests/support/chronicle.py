"""What must be so after all that happened to a store: the model that real publications are held against."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from support.lives import Run, Says

from batch_job.into import Into
from batch_job.union import SUBSETS_KEPT
from shared.layout import bucket_of
from shared.snapshot import Found, Listed, SnapshotMeta, SnapshotState, SubsetRun

_Key = tuple[str, tuple[str, ...]]
"""A snapshot by its name, and by the runs over a part that went into it."""

_WHOLE = frozenset({SnapshotState.READY, SnapshotState.HELD})


@dataclass
class Chronicle:
    """``pointer``: the snapshot that is active; ``flips``: the names of the history, newest first, with their kind."""

    pointer: str | None = None
    flips: list[tuple[str, str]] = field(default_factory=list)
    says: dict[_Key, Says] = field(default_factory=dict)
    damaged: dict[str, set[int]] = field(default_factory=dict)
    """The buckets that the store lost."""
    resident: set[str] = field(default_factory=set)
    """The snapshots that are whole, and that somebody may therefore know."""
    gone: set[str] = field(default_factory=set)
    """Those that were, and must never be seen again."""

    def flipped(self, snapshot: str, action: str) -> None:
        self.pointer = snapshot
        self.flips.insert(0, (action, snapshot))

    def emptied(self) -> None:
        """The store lost everything."""
        self.pointer, self.flips = None, []
        self.gone |= self.resident
        self.resident = set()
        self.damaged = {}

    def back(self, usable: Iterable[str]) -> str | None:
        """Where a rollback leads: before what was promoted last, and never forward."""
        path: list[str] = []
        for action, snapshot in reversed(self.flips):
            if action == "rollback":
                path = path[: path.index(snapshot) + 1]
            else:
                path = [one for one in path if one != snapshot] + [snapshot]
        left = [snapshot for snapshot in path[:-1] if snapshot in set(usable)]
        return left[-1] if left else None

    def begins(self, run: Run, name: str, base: SnapshotMeta | None) -> None:
        """A run is about to be written under a name: it must be one that nobody can know."""
        assert name not in self.gone, "the name of a snapshot that is gone"
        if run.into is Into.NEW:
            assert base is not None
            key, says = (name, (*_runs(base.subsets), name)), {**self.of(base)[-1], **run.says}
        else:
            key, says = (name, ()), run.says
        key = (name, key[1][-SUBSETS_KEPT:])
        assert name not in self.resident or self.says[key] == says, "the name of a snapshot that says something else"
        self.says[key] = says

    def joins(self, run: Run, base: SnapshotMeta) -> None:
        """A run is about to be written into a snapshot that is there."""
        if base.unfinished is None and run.name not in _runs(base.subsets):
            key = (base.snapshot, (*_runs(base.subsets), run.name)[-SUBSETS_KEPT:])
            self.says[key] = {**self.of(base)[-1], **run.says}

    def of(self, meta: SnapshotMeta) -> list[Says]:
        """What a snapshot may say: one thing; of each entity the old or the new, where an update has not ended."""
        runs = _runs(meta.subsets)
        keys = (
            [(meta.snapshot, runs)] if meta.unfinished is None else [(meta.snapshot, runs[:-1]), (meta.snapshot, runs)]
        )
        return [self.says[key] for key in keys]

    def is_lost(self, meta: SnapshotMeta, entity: str) -> bool:
        return bucket_of(entity, meta.buckets) in self.damaged.get(meta.snapshot, ())

    def sees(self, listed: Iterable[Listed]) -> None:
        """Takes what is there now: whoever was whole and is not there any more stays away."""
        rows = {row.meta.snapshot: row for row in listed}
        assert not self.gone & set(rows), "a snapshot that was gone is back"
        self.gone |= self.resident - set(rows)
        self.resident = {name for name, row in rows.items() if row.state in _WHOLE} | (self.resident & set(rows))


def counts(says: Says) -> tuple[int, int, int]:
    """How many entities, and of these scored and rejected."""
    scored = sum(isinstance(one, Found) for one in says.values())
    return len(says), scored, len(says) - scored


def _runs(subsets: Iterable[SubsetRun]) -> tuple[str, ...]:
    return tuple(one.run for one in subsets)
