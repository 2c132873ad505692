"""``forescore schedule --show``: the settings in effect, how the night stands, and when the next runs are due."""

from datetime import UTC, datetime

import orjson
import typer

from batch_job.nightly import Nightly
from batch_job.nights import Sight, Standing, look, max_age, standing
from batch_job.report import aligned
from batch_job.schedule import Effective, Nights, build_scheduler, effective
from batch_job.schedule_health import stamp
from shared.bundle import load_bundle
from shared.clock import Clock
from shared.errors import StoreError
from shared.settings import Settings
from shared.store.connect import open_store

FIRES = 5


def show(nightly: Nightly, settings: Settings, clock: Clock, *, as_json: bool) -> None:
    """Prints it; a store that does not answer is said to be so."""
    trigger = Nights(settings.schedule.cron, settings.schedule.timezone)
    now = datetime.fromtimestamp(clock.now(), UTC)
    model = load_bundle(nightly.bundle).name
    facts = {
        "model": model,
        "bundle": str(nightly.bundle),
        "table": nightly.table,
        "now": stamp(clock.now()),
        "settings": settings.schedule.model_dump(mode="json", exclude={"table"}),
        "job": _job(_effective(trigger, settings)),
        "max_age_seconds": max_age(trigger, now, settings.schedule.max_age_seconds),
        **_standing(trigger, settings, model, now),
        "next": [{"local": moment.isoformat(), "utc": _utc(moment)} for moment in trigger.upcoming(now, FIRES)],
    }
    if as_json:
        typer.echo(orjson.dumps(facts, option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo(aligned(_rows(facts)))


def _effective(trigger: Nights, settings: Settings) -> Effective:
    scheduler = build_scheduler(trigger, settings.schedule, lambda: None)
    scheduler.start(paused=True)
    try:
        return effective(scheduler)
    finally:
        scheduler.shutdown()


def _job(found: Effective) -> dict[str, object]:
    return {
        "trigger": found.trigger,
        "coalesce": found.coalesce,
        "max_instances": found.max_instances,
        "misfire_grace_seconds": found.misfire_grace_seconds,
        "jitter_seconds": found.jitter_seconds,
        "next_fire": _utc(found.next_fire),
    }


def _standing(trigger: Nights, settings: Settings, model: str, now: datetime) -> dict[str, object]:
    due = trigger.last(now)
    facts: dict[str, object] = {"last_due": _utc(due)}
    try:
        with open_store(settings, model) as store:
            sight = look(store)
    except StoreError as error:
        return {**facts, "store": str(error), "would_catch_up": None}
    return {**facts, "store": "reachable", **_seen(due, sight, catch_up=settings.schedule.catch_up)}


def _seen(due: datetime | None, sight: Sight, *, catch_up: bool) -> dict[str, object]:
    found = None if due is None else standing(due, sight)
    active = sight.active
    return {
        "active": None if active is None else active.snapshot,
        "scored_at": None if active is None else stamp(active.scored_at),
        "night": None if found is None else found.value,
        "lease": sight.holder,
        "would_catch_up": catch_up and found is Standing.OPEN,
    }


def _rows(facts: dict[str, object]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in facts.items():
        match value:
            case dict():
                rows += [(f"{name}.{inner}", _text(found)) for inner, found in value.items()]
            case list():
                rows += [(name, f"{fire['local']}  {fire['utc']}") for fire in value]
            case _:
                rows.append((name, _text(value)))
    return rows


def _text(value: object) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _utc(moment: datetime | None) -> str | None:
    return None if moment is None else stamp(moment.timestamp())
