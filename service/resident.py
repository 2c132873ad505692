"""Reading one snapshot by its id or its version, active or not. Nothing is scored online for that."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal

from service.answers import Answer
from service.lookup import Hit, Miss, RejectedInBatch, StoreDown, outcome
from service.refusals import rejected_in_batch
from service.runtime import Live
from shared.errors import ScoreUnavailable, SnapshotNotFound, SnapshotNotReady, UnknownEntity
from shared.snapshot import Lookup, Lost, SnapshotMeta, SnapshotState
from shared.telemetry import StageTimer

Choice = Callable[[Live], Awaitable[SnapshotMeta]]
_READABLE = frozenset({SnapshotState.READY, SnapshotState.HELD})


async def read_resident(live: Live, choose: Choice, entity_id: str, stages: StageTimer) -> Answer:
    """The entity's score in the snapshot that is chosen, however old it is."""
    with stages.stage("lookup"):
        meta = await choose(live)
        found, source = await _read(live, meta, entity_id)
    match outcome(found):
        case Hit() as hit:
            told = replace(hit, source=source)
            return Answer.from_hit(entity_id, told, meta, live.scorer.golden_digest)
        case RejectedInBatch() as rejected:
            raise rejected_in_batch(rejected)
        case StoreDown():
            raise ScoreUnavailable("the store has lost this entity's part of the snapshot; publish it again")
        case Miss():
            raise UnknownEntity("that snapshot does not have this entity")


async def _read(live: Live, meta: SnapshotMeta, entity_id: str) -> tuple[Lookup, Literal["cache", "file"]]:
    """From the store, or where there is none, from the file that is open."""
    if not live.alone:
        return (await live.store.reader.lookup(meta, [entity_id]))[0], "cache"
    found = await live.shelf.look_up(meta, [entity_id])
    return (Lost("late") if found is None else found[0]), "file"


def by_id(snapshot: str) -> Choice:
    """That very snapshot."""
    return lambda live: _find(live, snapshot)


def by_version(model_version: str) -> Choice:
    """The newest snapshot of that version that passed its gates."""
    return lambda live: _newest(live, model_version)


async def _newest(live: Live, model_version: str) -> SnapshotMeta:
    for one in await live.store.reader.snapshots():  # newest first
        if one.meta.model_version == model_version and one.state is SnapshotState.READY:
            return one.meta
    raise SnapshotNotFound("no snapshot of that version is ready in the store; GET /snapshots lists them")


async def _find(live: Live, snapshot: str) -> SnapshotMeta:
    listed = {one.meta.snapshot: one for one in await live.store.reader.snapshots()}
    if snapshot not in listed:
        raise SnapshotNotFound("no snapshot of that id is in the store; GET /snapshots lists them")
    one = listed[snapshot]
    if one.state not in _READABLE:
        raise SnapshotNotReady(f"the snapshot is {one.state.value}: it is not whole")
    return one.meta
