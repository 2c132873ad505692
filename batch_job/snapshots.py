"""The commands that look at what is in the store, and change which snapshot is served."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson
import typer

from batch_job.lease import held_lease, whoami
from batch_job.report import aligned
from batch_job.snapshot_file import record_active
from shared.answer import named_scores, predictions
from shared.bundle import load_bundle
from shared.errors import InvalidEntityId, SettingsError, SnapshotNotFound, StoreCorrupt
from shared.ids import is_valid_id
from shared.settings import Settings, load_settings
from shared.snapshot import Absent, Flip, Found, KnownRejected, Listed, Lookup, Lost, SnapshotMeta
from shared.store.connect import models, open_store
from shared.store.interfaces import Store

UNKNOWN_EXIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    store: Store
    model: str
    lease_seconds: float
    runs: Path


def list_snapshots(model: str | None, *, as_json: bool) -> None:
    """``forescore snapshots``."""
    with _opened(model) as opened:
        listed = opened.store.catalogue.snapshots()
    if as_json:
        typer.echo(orjson.dumps([_as_dict(row) for row in listed], option=orjson.OPT_INDENT_2).decode())
        return
    if not listed:
        typer.echo(f"model {opened.model} has no snapshots; forescore backfill makes one")
    for line in _table([_HEAD, *(_cells(row) for row in listed)] if listed else []):
        typer.echo(line)


def promote(snapshot: str, model: str | None, *, force: bool, as_json: bool) -> None:
    """``forescore promote``."""
    with _opened(model) as opened, held_lease(opened.store.leases, snapshot, opened.lease_seconds) as lease:
        flip = opened.store.control.promote(snapshot, lease, by=whoami(), forced=force)
        _record(opened)
    _tell_flip(flip, as_json=as_json)


def rollback(model: str | None, *, as_json: bool) -> None:
    """``forescore rollback``: it waits for nobody, since it is called when what is served is wrong."""
    with _opened(model) as opened:
        leases = opened.store.leases
        present = leases.holder()
        with held_lease(leases, "rollback", opened.lease_seconds, take_over=True) as lease:
            flip = opened.store.control.rollback(lease, by=whoami())
        _record(opened)
    _tell_flip(flip, as_json=as_json)
    if present is not None:
        typer.echo(f"stopped from publishing: {present}; its command goes on with what it has scored", err=True)


def retire(snapshot: str, model: str | None, *, force: bool, as_json: bool) -> None:
    """``forescore retire``."""
    with _opened(model) as opened, held_lease(opened.store.leases, snapshot, opened.lease_seconds):
        keys = opened.store.control.retire(snapshot, force=force)
        _record(opened)
    if as_json:
        typer.echo(orjson.dumps({"snapshot": snapshot, "keys": keys}).decode())
    else:
        typer.echo(f"retired {snapshot}: {keys:,} keys removed")


def get(entity_id: str, snapshot: str | None, model: str | None, *, as_json: bool) -> None:
    """``forescore get``: the exit code is 1 for an entity that the snapshot does not have."""
    if not is_valid_id(entity_id):
        raise InvalidEntityId("ENTITY: an id has 1 to 256 bytes, no control characters, and is not only blanks")
    with _opened(model) as opened:
        meta = _meta(opened, snapshot)
        found = opened.store.writer.read(meta, [entity_id])[0]
    facts = {"entity_id": entity_id, **_answer(found, meta), "model": meta.model, "model_version": meta.model_version}
    facts |= {"snapshot": meta.snapshot, "data_as_of": _moment(meta.data_as_of)}
    if as_json:
        typer.echo(orjson.dumps(facts).decode())
    else:
        typer.echo(aligned([(name, _text(value)) for name, value in facts.items() if value is not None]))
    if isinstance(found, Absent):
        raise typer.Exit(UNKNOWN_EXIT)


@contextmanager
def _opened(model: str | None) -> Iterator[_Opened]:
    settings = load_settings()
    name = model or _only_model(settings)
    with open_store(settings, name) as store:
        yield _Opened(store=store, model=name, lease_seconds=settings.gates.lease_seconds, runs=settings.runs_folder)


def _record(opened: _Opened) -> None:
    """The file of what is active now is recorded, where this host has the runs. What cannot be costs no flip."""
    try:
        record = record_active(opened.runs, opened.model, opened.store)
    except OSError as error:
        reason = (error.strerror or "unknown").lower()
        typer.echo(f"snapshot file not recorded: {opened.runs} cannot be written: {reason}", err=True)
        return
    if record is not None and record.active is not None and record.active.file is None:
        typer.echo(
            f"snapshot {record.active.snapshot} has no file under {opened.runs}: nothing stands in for the store while "
            "it is down; the command that published it writes the file, on the host where its run is",
            err=True,
        )


def _only_model(settings: Settings) -> str:
    if settings.bundle is not None:
        return load_bundle(settings.bundle).name
    known = models(settings)
    if not known:
        raise SnapshotNotFound(
            "the store has no snapshots; forescore backfill makes one, or FORESCORE_REDIS__URL is another's"
        )
    if len(known) > 1:
        raise SettingsError(f"the store has several models; name one: --model {' or --model '.join(known[:5])}")
    return known[0]


def _meta(opened: _Opened, snapshot: str | None) -> SnapshotMeta:
    if snapshot is None:
        active = opened.store.catalogue.active()
        if active is None:
            raise SnapshotNotFound(
                f"model {opened.model} has no active snapshot; forescore snapshots lists what is there"
            )
        return active.meta
    for row in opened.store.catalogue.snapshots():
        if row.meta.snapshot == snapshot:
            return row.meta
    raise SnapshotNotFound(
        f"model {opened.model} has no snapshot {snapshot[:100]}; forescore snapshots lists what is there"
    )


def _answer(found: Lookup, meta: SnapshotMeta) -> dict[str, object]:
    match found:
        case Found(scores=scores, scored_at=scored_at, online=online):
            named = named_scores(meta.outputs, scores)
            told = predictions(meta.outputs, scores) or None
            return {
                "status": "scored",
                "scores": named,
                "prediction": told,
                "source": "cache",
                "scored_by": "service" if online else "batch",
                "scored_at": _moment(scored_at),
            }
        case KnownRejected(code=code, field=field, scored_at=scored_at):
            return {"status": "rejected", "code": code.text, "field": field, "scored_at": _moment(scored_at)}
        case Absent():
            return {"status": "unknown"}
        case Lost(reason=reason):
            raise StoreCorrupt(
                f"snapshot {meta.snapshot}: the store cannot tell ({reason}), it lost or changed keys; "
                "run the backfill again with --force"
            )


_HEAD = ("snapshot", "state", "scored", "rejected", "scored at", "data as of", "by", "parts")


def _cells(row: Listed) -> tuple[str, ...]:
    meta = row.meta
    moments = (_moment(meta.scored_at) or "", _moment(meta.data_as_of) or "")
    state = "active" if row.active else row.state.value
    return (meta.snapshot, state, f"{meta.scored:,}", f"{meta.rejected:,}", *moments, meta.created_by, _parts(meta))


def _parts(meta: SnapshotMeta) -> str:
    """Which runs over a part of the entities went into it, the last one told."""
    if not meta.subsets:
        return ""
    last = meta.subsets[-1]
    how = f"copy of {last.base}" if last.into == "new" else "updated in place" if last.whole else "half updated"
    more = f", and {len(meta.subsets) - 1} more before" if len(meta.subsets) > 1 else ""
    return f"{how}: {last.entities:,} entities of {_moment(last.at)}{more}"


def _as_dict(row: Listed) -> dict[str, object]:
    facts = row.meta.model_dump(mode="json", exclude={"histograms", "outputs", "fields"})
    return {**facts, "state": row.state.value, "active": row.active}


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _tell_flip(flip: Flip, *, as_json: bool) -> None:
    if as_json:
        facts = {name: getattr(flip, name) for name in ("snapshot", "action", "by", "forced", "epoch")}
        typer.echo(orjson.dumps({**facts, "at": _moment(flip.at)}).decode())
    else:
        typer.echo(f"active: {flip.snapshot} ({flip.action}{', forced' if flip.forced else ''})")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _moment(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
