"""The way back: which snapshot a rollback leads to."""

from collections.abc import Collection, Sequence

from shared.snapshot import Flip

HISTORY_LENGTH = 100
PROMOTE = "promote"
ROLLBACK = "rollback"


def previous(history: Sequence[Flip], usable: Collection[str]) -> str | None:
    """The snapshot that was active before the one that is now, and can still be.

    ``history`` is newest first. A rollback undoes promotions, so a second one goes one further back, and not forward
    to the snapshot that the first one left.
    """
    stack: list[str] = []
    for flip in reversed(history):
        if flip.action == ROLLBACK and flip.snapshot in stack:
            del stack[stack.index(flip.snapshot) + 1 :]
        else:
            stack = [snapshot for snapshot in stack if snapshot != flip.snapshot] + [flip.snapshot]
    return next((snapshot for snapshot in reversed(stack[:-1]) if snapshot in usable), None)
